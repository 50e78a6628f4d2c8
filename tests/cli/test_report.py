"""The state of a run as text: status line, last line, failure block."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import pytest

from stepset.cli.arguments.backend_args import BackendArgs
from stepset.cli.output import tables
from stepset.cli.output.formats import as_json
from stepset.cli.output.outcome import outcome
from stepset.cli.output.status_page import status_page
from stepset.hang import Hang, HangGroup, HangKind, SlowRanks
from stepset.html.calls import logs_call
from stepset.html.status import status_html
from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset.watch.present.failure_report import ended
from stepset.watch.present.outcome import outcome_lines
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.sentences import duration, progress_words, state_line

RANKS = tuple(
    RankStatus(f"rank {n}", n, f"digits-node-{n // 2}", "node 0", state="Running", last_line=f"step {n}")
    for n in range(4)
)
RUNNING = RunStatus(
    "digits-1", "digits", "local", Phase.RUNNING, world_size=4, created=1000.0, started=1001.0, ranks=RANKS,
    progress=Progress(120, 0.4, {"loss": 0.3123456, "accuracy": 0.9}),
)  # fmt: skip
FAILURE = Failure(
    FailureKind.USER_ERROR,
    "rank 3 exited with code 1.",
    "Fix the error and run again.",
    rank=3,
    pod="digits-node-1",
    node="node 1",
    exit_code=1,
    error="ValueError: bad batch",
    tail=("Traceback ...", "ValueError: bad batch"),
    restarts=2,
    aftermath=("rank 0", "rank 1"),
)
FAILED = RUNNING.with_(phase=Phase.FAILED, finished=1062.0, failure=FAILURE)


def test_nodes_are_counted_if_their_ranks_are_unknown() -> None:
    rows = tuple(RankStatus(f"node {n}", None, f"digits-{n}", state="Succeeded") for n in range(2))
    launcher = RankStatus("launcher", None, "digits-launcher", state="Running")
    run = RUNNING.with_(ranks=(launcher, *rows), progress=None)
    assert state_line(run) == "Running, 0/2 nodes running"
    assert state_line(run.with_(phase=Phase.SUCCEEDED)) == "Succeeded, 2/2 nodes succeeded"


def test_the_state_line_shows_phase_ranks_and_progress() -> None:
    assert state_line(RUNNING) == "Running, 4/4 ranks running, 40 %, step 120, loss=0.31235, accuracy=0.9"
    assert state_line(RunStatus("a-1", "a", "local", reason="Starting")) == "Pending (Starting)"
    assert state_line(RUNNING.with_(attempt=1, progress=None)) == "Running, 4/4 ranks running, restart 1"


def test_progress_shows_only_reported_values() -> None:
    assert progress_words(None) == ""
    assert progress_words(Progress(step=3)) == "step 3"
    assert progress_words(Progress(progress=1.0)) == "100 %"


def test_success_is_one_line_with_result_and_duration() -> None:
    done = RUNNING.with_(phase=Phase.SUCCEEDED, finished=1012.3, result={"accuracy": 0.96, "note": "a\nb"})
    assert outcome(done) == 'stepset: run digits-1 succeeded in 12.3 s; result: {"accuracy": 0.96, "note": "a\\nb"}'
    assert outcome(done.with_(result=None, attempt=1)) == "stepset: run digits-1 succeeded in 12.3 s after 1 restart"
    assert outcome(done.with_(result=0)).endswith("; result: 0")


def test_a_failure_names_the_first_rank_the_cause_and_the_advice() -> None:
    assert outcome(FAILED).splitlines() == [
        "stepset: run digits-1 failed after 1m02s: UserError: rank 3 exited with code 1.",
        "  first failure rank 3, pod digits-node-1, on node 1, exit code 1",
        "  error         ValueError: bad batch",
        "  last lines    Traceback ...",
        "                ValueError: bad batch",
        "  restarts      2 restarts",
        "  aftermath     rank 0, rank 1: stopped because of it",
        "  advice        Fix the error and run again.",
        "  see           stepset failures UserError",
        "  logs          stepset logs digits-1 --ranks 3",
    ]


def test_a_report_refers_to_the_logs_of_the_rank_that_exited_too_early() -> None:
    lost = FAILED.with_(failure=replace(FAILURE, early_exit=1))
    assert outcome(lost).splitlines()[-1] == "  logs          stepset logs digits-1 --ranks 1"
    assert logs_call(lost) == "stepset.logs('digits-1', ranks=1)"


def test_a_report_refers_to_no_logs_that_were_deleted_with_the_run() -> None:
    """On a cluster, the logs are deleted with the pods. The logs of a local run remain."""
    failure = Failure(FailureKind.LOST, "run digits-1 no longer exists, and its end was not observed.", "")
    lost = RunStatus("digits-1", "digits", "kubernetes", Phase.LOST, failure=failure)
    assert outcome(lost).splitlines()[-1] == (
        "  logs          the logs were deleted with the pods of the run; see the cluster's log storage, if it has one"
    )
    assert outcome(replace(lost, backend="local")).splitlines()[-1] == "  logs          stepset logs digits-1"


def test_a_report_refers_to_no_logs_if_no_pod_has_started() -> None:
    failure = Failure(FailureKind.IMAGE_PULL, "rank 0 cannot start: ErrImagePull.", "Check the image's name.")
    row = RankStatus("rank 0", 0, "digits-node-0", state="Stopped")
    failed = RunStatus("digits-1", "digits", "kubernetes", Phase.FAILED, ranks=(row,), failure=failure)
    assert "stepset logs" not in outcome(failed)
    for began in (failed.with_(started=1000.0), failed.with_(ranks=(replace(row, exit_code=4),))):
        assert outcome(began).splitlines()[-1].startswith("  logs          stepset logs digits-1")


def test_the_suggested_command_contains_the_flags_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSET_BACKEND", raising=False)
    backend_args = BackendArgs("kubernetes", namespace="ml", kubeconfig="my config")
    flags = "--backend kubernetes --namespace ml --kubeconfig 'my config'"
    assert outcome(FAILED, flags=backend_args.as_flags).splitlines()[-1] == (
        f"  logs          stepset logs digits-1 {flags} --ranks 3"
    )
    monkeypatch.setenv("STEPSET_BACKEND", "kubernetes")
    assert BackendArgs("kubernetes", namespace="ml").as_flags == " --namespace ml"
    assert BackendArgs().as_flags == ""


def test_a_failure_with_few_details_shows_those() -> None:
    lost = RUNNING.with_(
        phase=Phase.LOST, failure=Failure(FailureKind.LOST, "deleted.", "Start it again."), finished=1001.0
    )
    assert outcome(lost).splitlines() == [
        "stepset: run digits-1 failed after 1 s: Lost: deleted.",
        "  advice        Start it again.",
        "  see           stepset failures Lost",
        "  logs          stepset logs digits-1",
    ]
    assert "no reason is known" in outcome(RUNNING.with_(phase=Phase.FAILED))


def test_an_error_with_which_the_message_begins_is_not_shown_twice() -> None:
    error = "the run took longer than its deadline of 5s."
    late = Failure(FailureKind.DEADLINE_EXCEEDED, error, "Set a longer deadline.", error=error)
    for message in (error, f"{error.rstrip('.')}; no running rank had printed a line."):
        failed = FAILED.with_(failure=replace(late, message=message))
        assert outcome(failed).splitlines() == [
            f"stepset: run digits-1 failed after 1m02s: DeadlineExceeded: {message}",
            "  advice        Set a longer deadline.",
            "  see           stepset failures DeadlineExceeded",
            "  logs          stepset logs digits-1",
        ]


def test_a_cancelled_run_and_a_running_run_are_one_line() -> None:
    cancelled = FAILED.with_(failure=Failure(FailureKind.CANCELLED, "cancelled.", "-"))
    assert outcome(cancelled) == "stepset: run digits-1 was cancelled after 1m02s"
    now = RUNNING.with_(created=time.time())
    assert outcome(now).startswith("stepset: run digits-1 is not over: Running, 4/4 ranks running")


def test_a_blocked_run_shows_the_cause_and_the_advice() -> None:
    trouble = Failure(FailureKind.UNSCHEDULABLE, "pod a has no room.", "Request less.", pod="a")
    held_up = RUNNING.with_(phase=Phase.PENDING, reason="Unschedulable", created=time.time(), trouble=trouble)
    first, *rest = outcome(held_up).splitlines()
    assert first.startswith("stepset: run digits-1 is not over: Pending (Unschedulable)")
    assert rest == ["  trouble       Unschedulable: pod a has no room.", "  advice        Request less."]
    lines = [line.split(maxsplit=1) for line in status_page(held_up).splitlines()]
    assert ["trouble", "Unschedulable: pod a has no room."] in lines and ["advice", "Request less."] in lines


def test_program_output_cannot_forge_or_break_the_block() -> None:
    nasty = Failure(FailureKind.USER_ERROR, "x\nstepset: all is well", "y", error="a\x1b[2Jb", tail=("c\rd", "\x00"))
    text = outcome(RUNNING.with_(phase=Phase.FAILED, failure=nasty))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b[2J" in text
    assert [line for line in text.splitlines() if line.startswith("stepset:")] == text.splitlines()[:1]


def test_colour_is_used_only_if_requested() -> None:
    assert "\x1b" not in outcome(FAILED)
    assert "\x1b[1;31mfailed\x1b[0m" in outcome(FAILED, colour=True)


@pytest.mark.parametrize(
    ("code", "signal", "text"),
    [(None, None, ""), (0, None, "exit code 0"), (None, 9, "signal 9 (SIGKILL)"), (None, 99, "signal 99 (unknown)")],
)
def test_how_a_process_ended(code: int | None, signal: int | None, text: str) -> None:
    assert ended(code, signal) == text


def test_durations_are_readable() -> None:
    assert [duration(s) for s in (-1, 0.04, 59.9, 60, 3599.9, 86400)] == [
        "0 s",
        "0 s",
        "59.9 s",
        "1m00s",
        "59m59s",
        "24h00m",
    ]


def test_every_report_names_the_rank_that_the_others_wait_for() -> None:
    slow = RUNNING.with_(slow=SlowRanks((2,), "node 1", "3", 97, 100, 0.215, 0.18))
    words = "rank 2 (node 1, GPU 3) joins last in 97 of 100 collectives, by 215 ms; the other ranks wait for it 18 %"
    for run in (slow, *(slow.with_(phase=phase, finished=200.0) for phase in (Phase.SUCCEEDED, Phase.FAILED))):
        lines = [line.split(maxsplit=1) for line in status_page(run).splitlines()]
        assert [line[1] for line in lines if line[:1] == ["slow"]] == [f"{words} of the time"]
        assert words in "\n".join(outcome_lines(run, 10.0, logs=""))
        assert words in status_html(run, 200.0)


def test_the_command_that_shows_the_stacks_of_a_hang_selects_the_cluster_of_the_run() -> None:
    groups = (HangGroup((0,), "collective"), HangGroup((1,), "sleeping", True))
    run = RUNNING.with_(backend="kubernetes", hang=Hang(HangKind.MISSING, 0.0, 310.2, 12.0, groups=groups))
    flags = " --backend kubernetes --namespace ml --kubeconfig bob.kubeconfig"
    command = f"stepset stacks {run.name}{flags}"
    records = Presenter(flags=flags).see(run, 0.0)
    for text in (status_page(run, flags), outcome(run, flags=flags), "\n".join(record.text for record in records)):
        assert text.count(command) == 1


def test_the_status_page_has_a_row_for_each_rank() -> None:
    lines = status_page(FAILED.with_(notes=("few cores",))).splitlines()
    rows = {tuple(line.split()[:2]) for line in lines}
    assert {("rank", str(n)) for n in range(4)} <= rows
    assert ("phase", "Failed") in rows
    assert any(line.startswith("failure") and line.endswith("UserError: rank 3 exited with code 1.") for line in lines)
    assert any(line.split() == ["note", "few", "cores"] for line in lines)
    assert not any(line != line.rstrip() for line in lines)


def test_the_status_page_shows_the_age_of_the_last_line_of_ranks_that_run() -> None:
    at = time.time() - 200
    rows = [RankStatus(f"rank {n}", n, "node-0", state="Running", last_line_at=at, last_line="step") for n in range(2)]
    rows[1] = replace(rows[1], state="Succeeded")
    header, *lines = status_page(RUNNING.with_(ranks=tuple(rows))).splitlines()[-3:]
    assert header.split() == ["SOURCE", "POD", "STATE", "LAST", "OUTPUT", "LAST", "LINE"]
    assert [line.split()[3:] for line in lines] == [["Running", "3m20s", "step"], ["Succeeded", "step"]]


def test_the_rank_that_failed_first_is_on_top_and_the_errors_of_the_others_are_shortened() -> None:
    rows = tuple(
        RankStatus(f"rank {n}", n, f"digits-node-{n // 2}", state="Failed", exit_code=1, last_line=f"{n}: " + "x" * 60)
        for n in range(4)
    )
    lines = status_page(FAILED.with_(ranks=rows)).splitlines()
    table = [line for line in lines if line.startswith("rank ")]
    assert [line.split()[1] for line in table] == ["3", "0", "1", "2"]
    assert table[0].endswith("3: " + "x" * 60)
    assert [line.partition("code 1  ")[2] for line in table[1:]] == [f"{n}: {'x' * 36}…" for n in range(3)]


@pytest.mark.parametrize("width", [80, 120])
def test_a_last_line_is_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = tuple(RankStatus(f"rank {n}", n, "digits-node-0", state="Running", last_line="x" * 300) for n in range(2))
    run = RUNNING.with_(ranks=rows)
    assert status_page(run).splitlines()[-1].endswith("x" * 300)  # a pipe gets everything
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    lines = status_page(run).splitlines()
    assert [len(line) for line in lines[-2:]] == [width, width]
    assert lines[-1].endswith("x…")


def test_nan_and_infinity_are_null_in_json() -> None:
    status = RUNNING.with_(result={"loss": math.nan, "best": [1.5, -math.inf]})
    assert json.loads(as_json(status.to_dict()), parse_constant=pytest.fail)["result"] == {
        "loss": None,
        "best": [1.5, None],
    }


def test_a_narrow_terminal_leaves_out_the_node_then_the_pod_and_folds_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)

    def columns(pod: str, node: str) -> list[str]:
        rows = [
            RankStatus(f"rank {n}", n, f"{pod}-{n}", node, state="Stopped", signal=15, last_line="x" * 200)
            for n in range(3)
        ]
        header, *lines = status_page(RUNNING.with_(ranks=tuple(rows))).splitlines()[-4:]
        assert [line.split()[1] for line in lines] == ["0", "1", "2"]
        assert all("SIGTERM" in line and len(line) == 80 for line in lines)
        return header.split()

    assert columns("node", "node 1") == ["SOURCE", "POD", "NODE", "STATE", "ENDED", "LAST", "LINE"]
    assert columns("digits-1bdcdb-node-0", "worker-17.example") == ["SOURCE", "POD", "STATE", "ENDED", "LAST", "LINE"]
    assert columns("digits-1bdcdb-node-0-0-with-a-suffix", "worker-17") == ["SOURCE", "STATE", "ENDED", "LAST", "LINE"]
