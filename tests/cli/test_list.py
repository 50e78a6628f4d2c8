"""`stepset list`: the table fits, names stay whole, filters select, and an empty result says where it looked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.backends.local.runs.store import RunStore
from stepset.cli.output import tables
from stepset.cli.output.run_table import RunColumns, run_table
from stepset.run_filter import WAITS, RunFilter
from stepset.run_status import Failure, FailureKind, Phase, Progress, RunStatus
from stepset.spec import TrainingJob
from stepset.watch.cluster import trouble
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
    assert header.split() == ["NAME", "PHASE", "REASON", "RANKS", "PROGRESS", "AGE", "DURATION", "PROGRAM"]
    assert all(len(row) <= width for row in rows)
    assert re.match(r"digits-1bdcdb  Running +0/4    40 %      3m\d\ds  3m\d\ds", rows[0])
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


def test_wide_shows_the_airflow_task_of_each_run(width: int) -> None:
    labels = {"dag_id": "nightly", "task_id": "train"}
    runs = [a_run("a-1", labels={**labels, "map_index": "3"}), a_run("a-2", labels=labels), a_run("a-3")]
    header, *rows = run_table(runs, RunColumns(wide=True)).splitlines()
    at = header.index("TASK")
    assert [row[at:].split("  ")[0].strip() for row in rows] == ["nightly.train[3]", "nightly.train", ""]
    assert "TASK" not in run_table(runs, RunColumns()).splitlines()[0]
    assert "TASK" not in run_table(runs[2:], RunColumns(wide=True)).splitlines()[0]


def test_a_problem_at_the_start_is_shown_in_short_and_with_wide_completely(width: int) -> None:
    trouble = Failure(FailureKind.REJECTED, 'pod a-1-node-0 cannot be started: secret "s" not found', "Create it.")
    runs = [a_run("a-1", phase=Phase.PENDING, reason="Starting", trouble=trouble)]
    assert "Starting, Re" in run_table(runs, RunColumns()) and "TROUBLE" not in run_table(runs, RunColumns())
    assert "Rejected: pod a-1-node-0 cannot be started" in run_table(runs, RunColumns(wide=True))


def test_runs_of_all_namespaces_name_theirs(width: int) -> None:
    header, row = run_table([three_runs()[1].with_(namespace="ml")], RunColumns(namespaces=True)).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["ml", "digits-77aa01"]


def test_the_reason_gets_the_room_of_omitted_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reason = "Unschedulable: " + "no room " * 10
    long = [run.with_(name="experiment-of-the-vision-team-7", reason=reason) for run in three_runs() if not run.failure]
    header, *rows = run_table(long, RunColumns()).splitlines()
    assert "PROGRAM" not in header
    assert len(header) == 80 and "Unschedulable…" in rows[1]


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
    kind = {Phase.FAILED: FailureKind.CANCELLED, Phase.LOST: FailureKind.LOST}.get(phase)
    failure = None if kind is None else Failure(kind, "it ended", "")
    status = RunStatus(
        name, f"{name}-job", "local", phase=phase, created=at, finished=at + 1, labels=labels, failure=failure
    )
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
        (("--job", "good-job"), ["good"]),
        (("--job", "good-job", "--job", "bad-job"), ["good", "bad"]),
        (("--reason", "cancelled"), ["bad"]),
        (("--reason", "Cancelled,LOST", "--phase", "failed"), ["bad"]),
        (("-l", "team=vision"), ["good", "bad"]),
        (("--since", "1d"), ["good", "lost"]),
        (("--since", "1d", "-l", "team", "--phase", "succeeded"), ["good"]),
    ],
)
def test_filters_select_runs_in_every_format(known: Cli, flags: tuple[str, ...], names: list[str]) -> None:
    assert known("list", *flags, "-o", "name").out.split() == names
    assert [line.split()[0] for line in known("list", *flags).out.splitlines()[1:]] == names
    assert [run["name"] for run in json.loads(known("list", *flags, "-o", "json").out)["items"]] == names


@pytest.mark.local
def test_a_label_of_the_command_line_selects_the_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: ['true']\nframework: plain\nlabels: {team: text, stage: test}\n")
    assert cli("run", "job.yaml", "--label", "team=vision", "--label", "acme.org/debug=").code == 0
    (run,) = stepset.list_runs()
    assert run.labels == {"team": "vision", "stage": "test", "acme.org/debug": ""}
    assert cli("list", "-l", "team=vision,acme.org/debug", "-o", "name").out == f"{run.name}\n"
    for wrong in ("team", "=vision"):
        refused = cli("run", "job.yaml", "--label", wrong)
        assert refused.err == f"stepset: --label: {wrong!r} is not KEY=VALUE; write it like team=vision\n"
        assert refused.code == 2


def test_python_has_the_same_filters(known: Cli) -> None:
    def names(**filters: Any) -> list[str]:
        return [run.name for run in stepset.list_runs(**filters)]

    assert names(job="good-job") == ["good"]
    assert names(job=["good-job", "lost-job"], reason="lost") == ["lost"]
    assert names(reason=("Cancelled", "lost"), phase="failed") == ["bad"]
    with pytest.raises(stepset.BadInputError, match=r"^phase: 'cancelled' is a reason .*; give it as reason$"):
        stepset.list_runs(phase="cancelled")


def test_a_failed_run_has_the_kind_of_its_failure_as_its_reason(known: Cli) -> None:
    items = json.loads(known("list", "-o", "json").out)["items"]
    assert {run["name"]: run["reason"] for run in items} == {"good": "", "bad": "Cancelled", "lost": "Lost"}
    assert {run.name: run.reason for run in stepset.list_runs()} == {"good": "", "bad": "Cancelled", "lost": "Lost"}


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--phase", "cancelled"), "--phase: 'cancelled' is a reason of runs in the phase failed; give it as --reason"),
        (("--phase", "ended"), "--phase: 'ended' is not a phase; use pending, "),
        (("--reason", "broken"), "--reason: 'broken' is not a reason; use UserError, "),
    ],
)
def test_an_unknown_phase_or_reason_is_bad_input(known: Cli, flags: tuple[str, str], error: str) -> None:
    wrong = known("list", *flags)
    assert (wrong.code, wrong.out, len(wrong.errors)) == (2, "", 1)
    assert wrong.err.startswith(f"stepset: {error}")


def test_the_reasons_of_the_filter_are_those_of_runs() -> None:
    reasons = {trouble.QUEUED, trouble.UNSCHEDULABLE, trouble.PULLING, trouble.STARTING, trouble.NODE_LOST}
    assert set(WAITS) == reasons


def test_an_empty_result_says_where_it_looked_and_how_to_look_elsewhere(known: Cli, tmp_path: Path) -> None:
    result = known("list", "--job", "none", "--phase", "running", "--reason", "queued", "-l", "team=x", "--since", "1h")
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        f"stepset: no runs found in {tmp_path / 'home' / 'runs'} with job none, phase running, reason queued, labels"
        " team=x, an age below 1h; for the runs on a cluster use --backend kubernetes\n"
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


def test_a_pipe_gets_whole_programs_without_colours(tmp_path: Path) -> None:
    def listed(**env: str) -> CommandResult:
        full = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
        done = subprocess.run(
            [STEPSET, "list"], env={**full, "STEPSET_HOME": str(tmp_path), **env}, capture_output=True, text=True
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    # The age 2d12h is the same in each call. An age in seconds would change between the calls.
    created = time.time() - 60.5 * 3600
    status = a_run("digits-1", phase=Phase.SUCCEEDED, created=created, finished=created + 200)
    _, lock = RunStore(tmp_path).create(status, TrainingJob(command=["true"]))
    os.close(lock)
    plain = listed()
    assert plain.out.splitlines()[1].endswith(f"  {PROGRAM}")
    # A space beside the mark is left out.
    assert max(map(len, listed(COLUMNS="120").out.splitlines())) in (118, 119, 120)
    assert "\x1b" not in plain.out + plain.err
    assert listed(NO_COLOR="1").out == plain.out
