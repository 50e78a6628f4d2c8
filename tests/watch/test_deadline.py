"""A run that exceeds its deadline because of a known hang: the failure names the guilty rank and its line."""

from __future__ import annotations

from stepset.watch.deadline import exceeded_deadline
from stepset.watch.diagnose import diagnose
from tests.watch.hangs.test_stalled import RUNS, hangs, status


def test_the_failure_names_the_rank_and_the_line_and_does_not_advise_a_longer_deadline() -> None:
    seen = exceeded_deadline("1h", status(hangs()), lambda source: (), 2000.0, torch=True)
    failure = diagnose([seen], local=True)
    assert failure is not None
    assert failure.message == (
        "the run took longer than its deadline of 1h; the run had made no progress for 5 min 10 s: rank 1 has not"
        " joined; sleeping in load data.py:17."
    )
    assert failure.advice == "data.py:17 on rank 1 blocks all other ranks."
    assert (failure.rank, failure.node) == (1, "node 1")


def test_without_a_hang_the_failure_describes_the_output_of_the_ranks() -> None:
    seen = exceeded_deadline("1h", RUNS.with_(started=900.0), lambda source: (), 2000.0, torch=True)
    assert "no running rank had printed a line" in seen.how
    assert seen.rank is None
