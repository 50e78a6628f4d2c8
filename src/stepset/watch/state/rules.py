"""Applies the ordered table of rules by which a backend decides the phase and the end of a run. Pure.

The tables: `stepset.watch.cluster.status` for a cluster, `stepset.backends.local.supervisor` for local runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stepset.hang import Hang
from stepset.run_status import Failure, Phase, RankStatus, RunStatus
from stepset.watch.bounded_json import without_nan
from stepset.watch.hangs.stalled import with_known_hang
from stepset.watch.present.sentences import NOT_FINITE
from stepset.watch.state.rank_states import final_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a rule.

    Args:
        at: when the run has finished, in seconds since the epoch. None if it has not finished, or if this is unknown.
        failure: why the run has finished, or why an attempt has ended, without success.
        verdict: the stored final status of the run.
    """

    phase: Phase
    reason: str = ""
    at: float | None = None
    failure: Failure | None = None
    verdict: RunStatus | None = None


def decide(rules: Sequence[Callable[[T], Decision | None]], facts: T) -> Decision:
    """Returns the result of the first rule that applies. The last rule of a table always applies."""
    return next(found for rule in rules if (found := rule(facts)) is not None)


def ended(
    status: RunStatus, decision: Decision, rows: Iterable[RankStatus], hang: Hang | None, reported: Any, alone: str
) -> RunStatus:
    """Returns the status after the end of a run, or of an attempt with the given rows.

    `hang` was known before the failure. `reported` is the result of rank 0. `alone` is from `Reports.alone_note`.
    """
    failure, result, notes = decision.failure and with_known_hang(decision.failure, hang), None, status.notes
    if decision.phase is Phase.SUCCEEDED:
        result = without_nan(reported)
        notes = (*notes, *filter(None, ["" if result is reported else NOT_FINITE, alone]))
    changes = {"ranks": final_rows(rows, failure), "failure": failure, "hang": hang, "result": result, "notes": notes}
    return status.with_(phase=decision.phase, reason=decision.reason, finished=decision.at, **changes)
