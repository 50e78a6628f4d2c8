"""Any command line and any job file gives a result or short errors: exit code 0 or 2, no traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.cli.app import build, call
from stepset.targets.request import TARGET_NAMES
from tests.cli.conftest import STEPSET

COMMAND = build()


def run(argv: list[str]) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and its errors."""
    errors = io.BytesIO()
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(errors, "utf-8")
    with redirect_stdout(out), redirect_stderr(err):
        code = call(COMMAND, argv)
    err.flush()
    return code, errors.getvalue().decode()


def check(argv: list[str]) -> None:
    code, errors = run(argv)
    assert code in (0, 2), errors
    assert (code == 2) == bool(errors) or code == 0
    lines = errors.splitlines()
    assert len(lines) <= 21
    assert all(len(line) < 2500 for line in lines)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
WORD = TEXT | st.sampled_from(
    ["0", "-1", "9" * 5000, "²", "1e400", ".inf", "null", "~", "{", "[" * 200, "!!bool x", "*a"]
)
KEY = st.sampled_from(
    ["env", "framework", "elastic", "kind", "roles", "0", "1", "9" * 5000, "²", "a", "num_nodes", "storage"]
)
PATH = st.lists(KEY | TEXT, min_size=1, max_size=6).map(".".join)
SETTING = st.builds("{}={}".format, PATH, WORD) | WORD
OF_THE_JOB = "nodes procs-per-node name image code env checkpoint-dir max-restarts deadline framework module set"
FLAG = st.sampled_from([f"--{name}" for name in OF_THE_JOB.split()])
FLAGS = st.lists(st.tuples(FLAG, SETTING | WORD), max_size=5).map(
    lambda pairs: [word for pair in pairs for word in pair]
)


@settings(max_examples=3 * settings().max_examples)
@given(st.sampled_from(["validate", "explain"]), FLAGS, st.booleans())
def test_any_flags_of_a_job(command: str, flags: list[str], program: bool) -> None:
    check([command, *flags, *(["--command", "--", "true"] if program else [])])


@settings(max_examples=100)
@given(st.lists(WORD | FLAG, max_size=5))
def test_any_words(words: list[str]) -> None:
    check(["validate", *words])


HUGE = st.sampled_from(
    [10**400, 2**63, 2147483647, -1, 1e400, "9" * 16_000, "x" * 100_000, "$(" * 10_000, "a\0b", "\ud800"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | HUGE
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | KEY, inner, max_size=4), max_leaves=8
)
SCHEMA: dict[str, Any] = json.loads(subprocess.check_output([STEPSET, "schema"], timeout=60))
PARTS = [*SCHEMA["properties"], *(key for part in SCHEMA["$defs"].values() for key in part.get("properties", {}))]
OTHER_FIELDS = [field for field in SCHEMA["properties"] if field not in ("command", "image")]
PART = st.dictionaries(st.sampled_from(PARTS), VALUE, max_size=3)
JOB = st.fixed_dictionaries(
    {"command": st.just(["true"]) | VALUE, "image": st.just("a") | VALUE},
    optional=dict.fromkeys(OTHER_FIELDS, VALUE | PART | st.lists(PART, max_size=2)),
)
TARGETS = st.sampled_from(TARGET_NAMES)


@settings(max_examples=3 * settings().max_examples)
@given(JOB, st.sampled_from(["validate", "explain", "render"]), TARGETS)
def test_any_value_of_any_field(job: dict[str, Any], command: str, target: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "job.json")
        path.write_text(json.dumps(job))
        check([command, str(path), *(["--target", target] if command == "render" else [])])


FILES = {
    "bom": b"\xef\xbb\xbfcommand: ['true']\n",
    "utf-16": "command: ['true']\n".encode("utf-16"),
    "latin-1": b"name: \xe9",
    "tag of python": b"a: !!python/object/apply:os.system [id]",
    "tag of bool": b"a: !!bool x",
    "tag of timestamp": b"a: !!timestamp x",
    "tag of int": b"a: !!int ''",
    "long tag": b"a: !" + b"x" * 1_000_000,
    "long anchor": b"a: *" + b"x" * 1_000_000,
    "merge of itself": b"a: &a {<<: *a}",
    "merge of a scalar": b"<<: 1",
    "nested merges": b"<<: " + b"[" * 50 + b"{}" + b"]" * 50,
    "date": b"command: ['true']\ndeadline: 9999-99-99",
    "sexagesimal": b"a: " + b"1:" * 100_000 + b"1",
    "hexadecimal": b"command: ['true']\nnum_nodes: 0x" + b"f" * 100_000,
    "binary number": b"command: ['true']\nnum_nodes: 0b" + b"1" * 100_000,
    "float": b"command: ['true']\nnum_nodes: 1e400",
    "infinity": b"command: ['true']\nnum_nodes: .inf",
    "json infinity": b'{"command": ["true"], "num_nodes": 1e999}',
    "roles": b"command: ['true']\nroles: 5",
    "nul": b'{"command": ["true", "a\\u0000b"]}',
    "nul in a key": b'{"command": ["true"], "env": {"a\\u0000": "b"}}',
    "surrogate": b'{"command": ["true"], "env": {"A": "\\ud800"}}',
    "env name": b'{"command": ["true"], "env": {"A=B": "1"}}',
    "line break in a key": b'{"command": ["true"], "env": {"\\r": null, "\\u2028": null}}',
    "many problems": json.dumps({"command": ["true"], "storage": [1] * 20_000}).encode(),
    "references": json.dumps({"command": ["true"], "env": {f"A{n}": "$(" * 65_000 for n in range(8)}}).encode(),
    "a variable above Linux's limit": json.dumps({"command": ["true"], "env": {"A": "$(" * 500_000}}).encode(),
    "zeros": bytes(4 << 20),
    "keys": b"? " * 100_000,
    "lines": b"\n" * 4_000_000,
    "quotes": b"'" * 1_000_000,
}
BAD = {*FILES} - {"bom", "references"}


@pytest.mark.local
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(FILES[name])
    hostile(path, code=2 if name in BAD else 0)


@pytest.mark.local
@pytest.mark.parametrize(
    "target", ["/dev/zero", "/dev/urandom", "/dev/null", "/dev/tty", "/proc/self/mem", "/tmp", "job.yaml"]
)
def test_a_link_to_something_else(tmp_path: Path, target: str) -> None:
    (tmp_path / "job.yaml").symlink_to(target)
    hostile(tmp_path / "job.yaml", code=2)


@pytest.mark.local
def test_a_sparse_file(tmp_path: Path) -> None:
    with (tmp_path / "job.yaml").open("wb") as file:
        file.truncate(1 << 30)
    hostile(tmp_path / "job.yaml", code=2)


@pytest.mark.local
@pytest.mark.parametrize(
    "words",
    [
        ["--set", "a" + ".b" * 60_000 + "=1"],
        ["--set", "roles." + "9" * 5000 + "=1"],
        ["--set", "roles=[]", "--set", "roles.²=1"],
        ["--set", "num_nodes=" + "[" * 100_000],
        ["--set", "num_nodes=!!bool x"],
        ["--nodes", "9" * 10_000],
        ["--nodes", "٣٣" * 3000],
        ["--env", "=1"],
        ["--env", "A"],
        ["--env", b"\xff=\xfe"],
        ["--set", b"name=\xff"],
        [b"\xff.yaml"],
    ],
    ids=lambda words: repr(words[-1])[:20],
)
def test_a_hostile_command_line(words: list[str | bytes]) -> None:
    program = [] if words[0] == b"\xff.yaml" else ["--command", "--", "true"]
    ended = subprocess.run(
        [STEPSET, "validate", *words, *program], preexec_fn=limit, capture_output=True, timeout=60, cwd="/"
    )
    judge(ended, 2)


def hostile(path: Path, code: int) -> None:
    command = [STEPSET, "validate", path]
    judge(subprocess.run(command, preexec_fn=limit, capture_output=True, timeout=60, start_new_session=True), code)


def limit() -> None:
    """Limits the memory of the command: the interpreter and its libraries need a fifth of this."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (500 << 20, 500 << 20))


def judge(ended: subprocess.CompletedProcess[bytes], code: int) -> None:
    errors = os.fsdecode(ended.stderr)
    assert ended.returncode == code, errors[-2000:]
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 21
    assert all(len(line) < 2500 for line in errors.splitlines())
