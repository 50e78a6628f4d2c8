"""`stepset list`: the table fits, names stay whole, filters select, and an empty result says where it looked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from stepset.backends.local.store import RunStore
from stepset.cli.arguments.run_filter import RunFilter
from stepset.cli.output import tables
from stepset.cli.output.run_table import RunColumns, run_table
from stepset.run_status import Failure, FailureKind, Phase, Progress, RunStatus
from stepset.spec import TrainingJob
from tests.cli.conftest import STEPSET, Cli, CommandResult

PROGRAM = "train.py --epochs 30 --data /mnt/datasets/imagenet/train-2024/shards --workers 16 --warmup 500 --lr 0.1"


def a_run(name: str, **fields: object) -> RunStatus:
    """A run that was created three minutes ago."""
    known = {"created": time.time() - 200, "world_size": 4, "program": PROGRAM, **fields}
    return RunStatus(name, "digits", "local", **known)  # type: ignore[arg-type]


def three_runs() -> list[RunStatus]:
    """Runs in three phases."""
    return [
        a_run("digits-1bdcdb", phase=Phase.RUNNING, progress=Progress(120, 0.4, {"loss": 0.31, "accuracy": 0.9})),
        a_run("digits-77aa01", phase=Phase.PENDING, reason="Unschedulable"),
        a_run(
            "digits-40eeb2", phase=Phase.FAILED, finished=time.time() - 140, expires=1.0,
            failure=Failure(FailureKind.DEADLINE_EXCEEDED, "too late", ""),
        ),
    ]  # fmt: skip


@pytest.fixture(params=[80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of columns, also of a pipe."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def test_the_table_fits_and_shows_every_column(width: int) -> None:
    header, *rows = run_table(three_runs(), RunColumns()).splitlines()
    assert header.split() == ["NAME", "PHASE", "REASON", "RANKS", "PROGRESS", "AGE", "TOOK", "PROGRAM"]
    assert all(len(row) <= width for row in rows)
    assert re.match(r"digits-1bdcdb  Running +0/4    40 %      3m   3m\d+s", rows[0])
    assert ("DeadlineExceeded, e…" if width == 120 else "DeadlineExc…") in rows[2]
    assert rows[0].endswith("…" if width == 80 else "--lr 0.1")


def test_the_program_is_shortened_in_the_middle(width: int) -> None:
    header, row = run_table([three_runs()[0].with_(progress=None)], RunColumns()).splitlines()
    program = row[header.index("PROGRAM") :]
    assert width - 2 <= len(row) <= width
    assert program.count("…") == 1
    first, _, last = program.partition("…")
    assert PROGRAM.startswith(first)
    assert PROGRAM.endswith(last)


@pytest.mark.parametrize("columns", [20, 80])
def test_names_are_never_shortened(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    names = [f"a-job-with-a-very-long-name-that-leaves-no-room-for-much-else-{n}" for n in range(2)]
    rows = run_table([a_run(name, phase=Phase.RUNNING) for name in names], RunColumns()).splitlines()[1:]
    assert [row.split()[0] for row in rows] == names


def test_wide_shows_everything(width: int) -> None:
    rows = run_table(three_runs(), RunColumns(wide=True)).splitlines()[1:]
    assert all(row.endswith(PROGRAM) for row in rows)
    assert "40 %, step 120, loss=0.31, accuracy=0.9" in rows[0]
    assert "DeadlineExceeded, expired" in rows[2]


def test_runs_of_all_namespaces_name_theirs(width: int) -> None:
    header, row = run_table([three_runs()[1].with_(namespace="ml")], RunColumns(namespaces=True)).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["ml", "digits-77aa01"]


def test_text_of_programs_cannot_break_the_table() -> None:
    (row,) = run_table([a_run("a-1", program="train.py '\x1b[2J\n'")], RunColumns(wide=True)).splitlines()[1:]
    assert row.endswith("train.py '\\x1b[2J\\n'")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", "abc"),
        ("team=vision", "a"),
        ("team==vision,debug", ""),
        ("team!=vision", "bc"),
        ("team", "ab"),
        ("!team", "c"),
        ("team in (vision, audio)", "ab"),
        ("team notin (audio)", "ac"),
    ],
)
def test_label_selectors_are_those_of_kubectl(selector: str, selected: str) -> None:
    labels = {"a": {"team": "vision"}, "b": {"team": "audio", "debug": ""}, "c": {}}
    runs = [a_run(name, labels=each) for name, each in labels.items()]
    assert "".join(run.name for run in RunFilter(selector=selector).select(runs)) == selected


def create(home: Path, name: str, phase: Phase, *, ago: float, **labels: str) -> None:
    """Creates the directory of a run that was created some seconds ago."""
    at = time.time() - ago
    status = RunStatus(name, "job", "local", phase=phase, created=at, finished=at + 1, labels=labels)
    _, lock = RunStore(home).create(status, TrainingJob(command=["true"]))
    os.close(lock)


@pytest.fixture
def known(cli: Cli, tmp_path: Path) -> Cli:
    """The command line, with three runs."""
    create(tmp_path / "home", "good", Phase.SUCCEEDED, ago=100, team="vision")
    create(tmp_path / "home", "bad", Phase.FAILED, ago=90_000, team="vision")
    create(tmp_path / "home", "lost", Phase.LOST, ago=300)
    return cli


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), ["good", "lost", "bad"]),
        (("--phase", "FAILED", "--phase", "lost"), ["lost", "bad"]),
        (("--phase", "failed,succeeded"), ["good", "bad"]),
        (("-l", "team=vision"), ["good", "bad"]),
        (("--since", "1d"), ["good", "lost"]),
        (("--since", "1d", "-l", "team", "--phase", "succeeded"), ["good"]),
    ],
)
def test_filters_select_runs_in_every_format(known: Cli, flags: tuple[str, ...], names: list[str]) -> None:
    assert known("list", *flags, "-o", "name").out.split() == names
    assert [line.split()[0] for line in known("list", *flags).out.splitlines()[1:]] == names
    assert [run["name"] for run in json.loads(known("list", *flags, "-o", "json").out)["items"]] == names


def test_an_empty_result_says_where_it_looked_and_how_to_look_elsewhere(known: Cli, tmp_path: Path) -> None:
    result = known("list", "--phase", "running", "-l", "team=x", "--since", "1h")
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        f"stepset: no runs found in {tmp_path / 'home' / 'runs'} with phase running, labels team=x, an age below 1h;"
        " for the runs on a cluster use --backend kubernetes\n"
    )
    empty = known("list", "--phase", "running", "-o", "json")
    assert (json.loads(empty.out)["items"], empty.err) == ([], "")


def test_the_disk_usage_of_local_runs_is_shown_on_request(known: Cli) -> None:
    assert "SIZE" not in known("list").out
    header, *rows = known("list", "--disk-usage").out.splitlines()
    assert "SIZE" in header.split()
    assert all(re.search(r" \d+(\.\d)?[KM]\b", row) for row in rows)
    assert all(run["size"] > 4096 for run in json.loads(known("list", "--disk-usage", "-o", "json").out)["items"])
    wrong = known("list", "--disk-usage", "--backend", "kubernetes")
    assert (wrong.code, wrong.err.startswith("stepset: --disk-usage: ")) == (2, True)


def test_a_pipe_gets_a_table_of_80_columns_without_colours(tmp_path: Path) -> None:
    def listed(**env: str) -> CommandResult:
        full = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
        done = subprocess.run(
            [STEPSET, "list"], env={**full, "STEPSET_HOME": str(tmp_path), **env}, capture_output=True, text=True
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    status = a_run("digits-1", phase=Phase.SUCCEEDED, finished=time.time())
    _, lock = RunStore(tmp_path).create(status, TrainingJob(command=["true"]))
    os.close(lock)
    plain = listed()
    # A space beside the mark is left out.
    assert max(map(len, plain.out.splitlines())) in (78, 79, 80)
    assert max(map(len, listed(COLUMNS="120").out.splitlines())) in (118, 119, 120)
    assert "\x1b" not in plain.out + plain.err
    assert listed(NO_COLOR="1").out == plain.out
