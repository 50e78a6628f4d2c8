"""The text with which all interfaces report why a run failed."""

from __future__ import annotations

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.outcome import outcome_lines
from stepset.watch.present.sentences import REMOVED

BROKEN = Failure(
    FailureKind.USER_ERROR,
    "rank 3 failed: ValueError: no digits",
    "Fix the training code.",
    rank=3,
    pod="train-node-1",
    exit_code=1,
    error="ValueError: no digits",
    tail=("Traceback (most recent call last):", "ValueError: no digits"),
    restarts=2,
    aftermath=("rank 0", "rank 1"),
)


def text_of(failure: Failure) -> str:
    return failure_text(RunStatus("train-1", "train", "local", Phase.FAILED, failure=failure))


def test_the_diagnosis_is_followed_by_the_last_lines_of_the_rank() -> None:
    assert text_of(BROKEN).splitlines() == [
        "run train-1 failed: UserError: rank 3 failed: ValueError: no digits",
        "  first failure rank 3, pod train-node-1, exit code 1",
        "  error         ValueError: no digits",
        "  last lines    Traceback (most recent call last):",
        "                ValueError: no digits",
        "  restarts      2 restarts",
        "  aftermath     rank 0, rank 1: stopped because of it",
        "  advice        Fix the training code.",
        "  see           stepset failures UserError",
    ]


def test_a_signal_is_named() -> None:
    killed = Failure(FailureKind.INFRASTRUCTURE, "killed.", "see dmesg.", pod="node-1", signal=9)
    assert "  first failure pod node-1, signal 9 (SIGKILL)" in text_of(killed).splitlines()


def test_unknown_details_have_no_row() -> None:
    bare = Failure(FailureKind.RENDEZVOUS, "the ranks did not meet.", "")
    assert text_of(bare) == "run train-1 failed: Rendezvous: the ranks did not meet."


def test_a_lost_run_is_reported_as_lost() -> None:
    assert failure_text(RunStatus("r", "r", "local", Phase.LOST)).startswith("run r was lost")


def test_the_diagnosis_of_a_removed_run_names_no_command_for_its_logs() -> None:
    failed = RunStatus("train-1", "train", "kubernetes", Phase.FAILED, started=1.0, failure=BROKEN)
    assert outcome_lines(failed, 1.0, logs="stepset logs train-1")[-1] == "  logs          stepset logs train-1"
    rows = outcome_lines(failed.with_(notes=(REMOVED,)), 1.0, logs="stepset logs train-1")
    assert not any(row.lstrip().startswith("logs") for row in rows)
