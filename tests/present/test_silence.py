"""The text states what is known about ranks that print nothing, unless a rank still prints."""

from __future__ import annotations

from stepset.run_status import RankStatus, RunStatus
from stepset.watch.present.silence import silence

NOW = 1000.0


def words(*ages: float | None, started: float = 900.0, state: str = "Running") -> str:
    """The silence of ranks whose last lines have these ages; None: the rank has printed nothing."""
    rows = [
        RankStatus(f"rank {rank}", rank, "node-0", state=state, last_line_at=None if age is None else NOW - age)
        for rank, age in enumerate(ages)
    ]
    launcher = RankStatus("launcher", None, "launcher", state="Running", last_line_at=NOW)
    return silence(RunStatus("a-1", "a", "local", started=NOW - started, ranks=(*rows, launcher)), NOW)


def test_the_ranks_whose_last_lines_are_older_are_named() -> None:
    assert (
        words(30.0, 70.0, 30.2, 70.9)
        == "no running rank had printed a line for 30 s; rank 1, rank 3 printed their last lines 1m10s before"
    )


def test_no_rank_is_named_if_all_stopped_at_the_same_time() -> None:
    assert words(30.0, 30.4) == "no running rank had printed a line for 30 s"


def test_a_rank_that_has_printed_nothing_is_not_blamed() -> None:
    assert (
        words(30.0, None)
        == "no running rank had printed a line for 30 s; rank 1 had printed no line yet, which does not prove a hang"
    )
    assert words(None, None) == "no running rank had printed a line"


def test_the_last_line_is_shown_and_shortened() -> None:
    rows = (
        RankStatus("rank 0", 0, "node-0", state="Running", last_line="step " * 40, last_line_at=NOW - 30),
        RankStatus("rank 1", 1, "node-0", state="Running"),
    )
    text = silence(RunStatus("a-1", "a", "local", started=100.0, ranks=rows), NOW)
    assert f"; the last line was of rank 0: {('step ' * 40)[:79]}…; " in text


def test_ranks_that_have_exited_are_named_because_the_other_ranks_may_wait_for_them() -> None:
    rows = (
        RankStatus("rank 0", 0, "node-0", state="Running", last_line_at=NOW - 30),
        RankStatus("rank 1", 1, "node-0", state="Succeeded", exit_code=0, last_line_at=NOW - 1),
    )
    assert silence(RunStatus("a-1", "a", "local", started=100.0, ranks=rows), NOW) == (
        "no running rank had printed a line for 30 s; rank 1 had exited with code 0 while rank 0 still ran"
    )


def test_many_ranks_are_counted() -> None:
    assert "rank 4 and 3 more printed their last lines " in words(*[70.0] * 8, 30.0)


def test_ranks_are_not_silent_while_one_of_them_prints_or_once_they_have_ended_or_just_after_the_start() -> None:
    assert words(1.0, 500.0) == ""
    assert words(30.0, 70.0, state="Stopped") == ""
    assert words(None, started=2.0) == ""
