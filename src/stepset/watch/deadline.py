"""States why a run that exceeded its deadline had not finished, as far as the output of its ranks shows it.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stepset.hang import Hang
from stepset.run_status import FailureKind, RunStatus
from stepset.watch.advice import RAISED_ADVICE, hang_advice, late_exit_advice
from stepset.watch.diagnose import Observation
from stepset.watch.lines import without_rank_mark
from stepset.watch.present.hang import hang_clause, hang_remedy
from stepset.watch.present.process_end import exceeded_sentence
from stepset.watch.present.silence import silence, unfinished
from stepset.watch.tracebacks import stuck_rank


def exceeded_deadline(
    deadline: str, status: RunStatus, tail: Callable[[str], Sequence[str]], now: float, *, torch: bool
) -> Observation:
    """Returns the observation that a run has exceeded its deadline.

    Args:
        deadline: the deadline as it is written in the job.
        status: the status of the run when the deadline passed.
        tail: a function that returns the last lines of a source.
        now: the current time, in seconds since the epoch.
        torch: whether the framework of the job is torch.
    """
    if status.hang is not None:
        return _hung(exceeded_sentence(deadline, hang_clause(status.hang)), status, status.hang, now)
    seen = Observation("", now, kind=FailureKind.DEADLINE_EXCEEDED)
    stuck, idle = stuck_rank(status, tail, now), silence(status, now)
    if idle:
        seen = replace(seen, advice=deadline_advice(unfinished(status), torch=torch))
    if stuck is not None:
        row, error = stuck
        lines = tuple(without_rank_mark(row.source, line) for line in tail(row.source))
        seen = replace(seen, advice=RAISED_ADVICE, rank=row.rank, node=row.node, error=error, tail=lines)
    text = exceeded_sentence(deadline, idle, "" if stuck is None else stuck[0].source)
    return replace(seen, how=text, error=seen.error or text)


def _hung(text: str, status: RunStatus, hang: Hang, now: float) -> Observation:
    """Returns the observation of a run that exceeded its deadline because of a known hang."""
    first = next((rank for group in hang.guilty for rank in group.ranks), None)
    row = next((row for row in status.ranks if row.rank is not None and row.rank == first), None)
    seen = Observation("", now, kind=FailureKind.DEADLINE_EXCEEDED, how=text, error=text, advice=hang_remedy(hang))
    return seen if row is None else replace(seen, rank=row.rank, node=row.node)


def deadline_advice(late: str, *, torch: bool | None) -> str:
    """Returns the advice for a run that may have hung until its deadline.

    Args:
        late: the ranks that still ran after other ranks had exited with code 0. "" if there are none.
        torch: whether the framework of the run is torch. None if the framework is unknown.
    """
    return late_exit_advice(late) if late else hang_advice(torch=torch)
