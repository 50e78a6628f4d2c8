"""The messages of a run in the task log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RunStatus
from stepset_airflow.logs.task_log import TaskLog, find_callbacks, ranks_to_log


class Lines:
    """A logger that records its messages."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def info(self, event: str) -> None:
        self.messages.append(("info", event))

    def warning(self, event: str) -> None:
        self.messages.append(("warning", event))

    def exception(self, event: str) -> None:
        self.messages.append(("exception", event))


RUNNING = RunStatus("run-1", "job", "local", Phase.RUNNING, world_size=4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", None), ("failed", set()), ("0", {0}), (3, {3}), ("0, 2", {0, 2}), ([1, "2"], {1, 2}), ((0,), {0})],
)
def test_log_ranks_selects_all_ranks_none_one_or_some(given: Any, expected: set[int] | None) -> None:
    assert ranks_to_log(given) == expected


@pytest.mark.parametrize("given", ["some", "", [], "-1", [1.5], "0;1"])
def test_an_invalid_value_of_log_ranks_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"log_ranks: .* is not known"):
        ranks_to_log(given)


@pytest.mark.parametrize(
    ("log_ranks", "shown"),
    [
        ("all", ["rank 0", "rank 1", "rank 10", "node 0", "launcher"]),
        ("1", ["rank 1", "node 0", "launcher"]),
        ("0,10", ["rank 0", "rank 10", "node 0", "launcher"]),
        ("failed", []),
    ],
)
def test_lines_of_the_selected_ranks_and_of_other_sources_are_logged_with_their_prefix(
    log_ranks: str, shown: list[str]
) -> None:
    log = Lines()
    listener = TaskLog(log, ranks_to_log(log_ranks))
    for source in ("rank 0", "rank 1", "rank 10", "node 0", "launcher"):
        listener.on_line(LogLine(source, "100 % {done}"))
    assert log.messages == [("info", f"[{source}] 100 % {{done}}") for source in shown]


def test_phases_and_notes_are_logged_once() -> None:
    log = Lines()
    listener = TaskLog(log)
    noisy = RUNNING.with_(notes=("8 processes share 2 cores",))
    for status in (noisy, noisy, noisy.with_(phase=Phase.RESTARTING, attempt=1)):
        listener.on_status(status)
    assert log.messages == [
        ("warning", "8 processes share 2 cores"),
        ("info", "run run-1: Running, 4 ranks"),
        ("info", "run run-1: Restarting, 4 ranks, restart 1"),
    ]


def test_progress_is_logged_at_most_once_a_second_and_always_at_the_end() -> None:
    log = Lines()
    listener = TaskLog(log)
    listener.on_status(RUNNING)
    for step in range(1, 100):
        listener.on_status(RUNNING.with_(progress=Progress(step, step / 100)))
    listener.on_status(RUNNING.with_(phase=Phase.SUCCEEDED, progress=Progress(99, 0.99)))
    progress = [text for _, text in log.messages if text.startswith("progress")]
    assert progress[0] == "progress: 1 %, step 1"
    assert progress[-1] == "progress: 99 %, step 99"
    assert len(progress) < 10


def test_the_reason_why_a_run_does_not_start_is_a_warning_and_logged_once() -> None:
    log = Lines()
    trouble = Failure(FailureKind.UNSCHEDULABLE, "no room for pod a: 2 Insufficient cpu", "Request less.", pod="a")
    waiting = RUNNING.with_(phase=Phase.PENDING, reason="Unschedulable", trouble=trouble)
    first = TaskLog(log)
    for _ in range(2):
        first.on_status(waiting)
    TaskLog(log, reported=json.loads(json.dumps(first.reported))).on_status(waiting)
    assert log.messages == [
        ("info", "run run-1: Pending (Unschedulable), 4 ranks"),
        ("warning", "trouble: Unschedulable: no room for pod a: 2 Insufficient cpu. Request less."),
    ]


def test_a_failed_run_is_a_warning_and_the_exception_contains_the_details() -> None:
    log = Lines()
    failure = Failure(FailureKind.USER_ERROR, "rank 3 exited with code 1.", "Look at the error.", rank=3)
    TaskLog(log).on_status(RUNNING.with_(phase=Phase.FAILED, failure=failure))
    assert log.messages == [("warning", "run run-1 failed: UserError: rank 3 exited with code 1.")]


def test_the_result_follows_the_end_of_the_run_once_with_secrets_masked() -> None:
    log = Lines()
    ended = RUNNING.with_(phase=Phase.SUCCEEDED, result={"loss": 0.1, "api_key": "hidden-value", "é": "\u202egnp"})
    listener = TaskLog(log)
    for _ in range(2):
        listener.on_status(ended)
    TaskLog(log, reported=json.loads(json.dumps(listener.reported))).on_status(ended)
    assert log.messages == [
        ("info", "run run-1 succeeded"),
        ("info", 'result: {"loss": 0.1, "api_key": "***", "é": "\\u202egnp"}'),
    ]


def test_a_long_result_is_cut() -> None:
    log = Lines()
    TaskLog(log).on_status(RUNNING.with_(phase=Phase.SUCCEEDED, result=["x" * 100] * 39))
    text = log.messages[-1][1]
    assert text.startswith('result: ["xxx')
    assert text.endswith("... (XCom has all)")
    assert len(text) < 1050


def test_callbacks_receive_every_change_as_plain_data() -> None:
    received: list[dict[str, Any]] = []
    listener = TaskLog(Lines(), None, (received.append,))
    listener.on_status(RUNNING)
    listener.on_status(RUNNING.with_(phase=Phase.SUCCEEDED, result={"loss": 0.1}))
    assert [(status["phase"], status["result"]) for status in received] == [
        ("Running", None),
        ("Succeeded", {"loss": 0.1}),
    ]


def test_a_failing_callback_is_logged_and_stops_neither_the_run_nor_other_callbacks() -> None:
    def broken(status: dict[str, Any]) -> None:
        raise RuntimeError("no such dashboard")

    received: list[dict[str, Any]] = []
    log = Lines()
    TaskLog(log, None, (broken, received.append)).on_status(RUNNING)
    assert len(received) == 1
    assert next(event for level, event in log.messages if level == "exception").endswith("failed; the run continues")


def test_callbacks_are_found_by_dotted_path() -> None:
    assert find_callbacks("json.dumps")[0].__name__ == "dumps"
    assert find_callbacks(None) == ()
    with pytest.raises(BadInputError, match=r"callbacks: 'no.such.place' cannot be imported"):
        find_callbacks(["json.dumps", "no.such.place"])


def test_lines_that_a_predecessor_logged_after_its_last_position_are_not_logged_again() -> None:
    written = ["[rank 0] a", "run run-1: Running, 4 ranks", "something is odd", "progress: 40 %", "[rank 0] b"]
    log = Lines()
    listener = TaskLog(log, reported={"phase": "run run-1: Pending", "notes": ["known"]}, written=written)
    for text in ("a", "b", "c"):
        listener.on_line(LogLine("rank 0", text))
    notes = ("known", "something is odd", "new")
    listener.on_status(RUNNING.with_(notes=notes, progress=Progress(progress=0.4)))
    assert log.messages == [("info", "[rank 0] c"), ("warning", "new")]
    listener.on_status(RUNNING.with_(phase=Phase.SUCCEEDED, notes=notes, progress=Progress(progress=0.5)))
    assert log.messages[2:] == [("info", "progress: 50 %"), ("info", "run run-1 succeeded")]
    assert listener.reported["notes"] == sorted(notes)


HOSTILE = "bad\x1b]52;c;cm0gLXJm\x07\x1b[2J\u202egnp"


def test_lines_keep_their_colours_and_no_other_control_sequence() -> None:
    log = Lines()
    TaskLog(log).on_line(LogLine("rank 0", f"\x1b[31mred {HOSTILE}"))
    assert log.messages == [("info", "[rank 0] \x1b[31mred bad\\u202egnp\x1b[0m")]


def test_restarts_troubles_and_the_end_are_printable() -> None:
    log = Lines()
    listener = TaskLog(log)
    trouble = Failure(FailureKind.UNSCHEDULABLE, HOSTILE, "Wait.", pod="p")
    listener.on_status(RUNNING.with_(notes=(f"restart 1: {HOSTILE}",), trouble=trouble, phase=Phase.PENDING))
    listener.on_status(RUNNING.with_(progress=Progress(metrics={HOSTILE: 1.0})))
    listener.on_status(RUNNING.with_(phase=Phase.FAILED, failure=Failure(FailureKind.USER_ERROR, HOSTILE, "Fix it.")))
    listener.note(HOSTILE)
    assert len([text for _, text in log.messages if "\\u202egnp" in text]) == 5
    assert all(text.isprintable() for _, text in log.messages)


def test_the_exception_that_ends_the_task_is_printable() -> None:
    from stepset_airflow.exceptions import TrainingTaskError

    failure = Failure(
        FailureKind.USER_ERROR, HOSTILE, "Fix it.", error=f"E: {HOSTILE}", tail=(HOSTILE,), events=(HOSTILE,)
    )
    text = str(TrainingTaskError.of(RUNNING.with_(phase=Phase.FAILED, failure=failure)))
    assert text.count("\\u202egnp") == 4
    assert all(line.isprintable() for line in text.split("\n"))
