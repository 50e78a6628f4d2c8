"""Whatever the files of a local run contain, its state is read or an error, and other runs are listed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepset.backends.local.liveness import PROCESSES_FILE, SUPERVISOR_FILE
from stepset.backends.local.logs.files import copy_lines, read_lines
from stepset.backends.local.processes import pid_space
from stepset.backends.local.runs.store import RunStore
from stepset.backends.prune import PruneRule
from stepset.errors import StepsetError
from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from tests.fuzzing import FUZZED

NUMBERS = st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), True])
WORDS = st.text(max_size=8) | st.sampled_from(["9" * 4301, "Running", "Lost", "\ud800", "[" * 5000])
JSON = st.recursive(
    st.none() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
STATUS = RunStatus(
    "bad",
    "job",
    "local",
    Phase.RUNNING,
    created=100.0,
    started=101.0,
    world_size=1,
    progress=Progress(1, 0.5, {"x": 1.0}),
).with_(
    ranks=(RankStatus("rank 0", 0, "pod", "node", "Running"),),
    failure=Failure(FailureKind.USER_ERROR, "failed", "Fix it.", rank=0, tail=("line",)),
)
STATES = (STATUS, STATUS.with_(phase=Phase.FAILED, finished=102.0))
FILES: dict[str, Any] = {
    "state.json": STATUS.to_dict(),
    SUPERVISOR_FILE: {"pid": 1, "started": 1.0, "start_ticks": 2, "pid_space": pid_space()},
    PROCESSES_FILE: {"rank 0": [1, 2]},
    "job.json": {"ttl": "30d"},
}


@st.composite
def altered(draw: st.DrawFn) -> tuple[str, bytes]:
    """The name of a file of a run, and its content with some values replaced; or any bytes."""
    name = draw(st.sampled_from(sorted(FILES)))
    if draw(st.integers(0, 4)) == 0:
        return name, draw(st.binary(max_size=50) | JSON.map(json.dumps).map(str.encode))
    found = json.loads(json.dumps(FILES[name]))
    node: Any = found
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or draw(st.integers(0, 4)) == 0:
            node[key] = draw(JSON)
            break
        node = node[key]
    return name, json.dumps(found).encode()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with TemporaryDirectory() as made:
        runs = Path(made) / "runs"
        (runs / "good").mkdir(parents=True)
        good = STATUS.with_(name="good", phase=Phase.SUCCEEDED, finished=102.0, failure=None)
        (runs / "good" / "state.json").write_text(json.dumps(good.to_dict()))
        (runs / "bad").mkdir()
        yield Path(made)


@FUZZED
@given(st.sampled_from(STATES), st.lists(altered(), min_size=1, max_size=3))
@example(STATES[1], [("job.json", b'{"ttl": "soon"}')])
@example(STATES[1], [("job.json", b'{"ttl": [1]}')])
def test_any_files_of_a_run_hide_no_other(home: Path, state: RunStatus, files: list[tuple[str, bytes]]) -> None:
    bad = home / "runs" / "bad"
    bad.mkdir(exist_ok=True)
    for name, data in FILES.items():
        (bad / name).write_text(json.dumps(state.to_dict() if name == "state.json" else data))
    for name, content in files:
        (bad / name).write_bytes(content)
    store = RunStore(home)
    listed = store.list()
    assert "good" in [status.name for status in listed]
    json.dumps([status.to_dict() for status in listed])
    with suppress(StepsetError):
        store.find("bad").read()
    store.prune(PruneRule(), time.time())


@FUZZED
@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"[rank 0] a\n", b"[rank 0+] ", b"\n", b"[stepset] {}\n"])))
def test_any_log_is_read(home: Path, pieces: list[bytes]) -> None:
    run = RunStore(home).find("good")
    run.log.write_bytes(b"".join(pieces))
    run.parts.touch()
    for sources in (None, frozenset({"rank 0"})):
        for block in read_lines(run, sources=sources):
            assert all(isinstance(line.text, str) for line in block)
    with (run.path / "copy").open("wb") as out:
        copy_lines(run, out)
