"""How a failed run ends its task: fail, retry or skip, and what the task log says. Pure.

Used by the operator once the run is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.watch.state import Failure, RunStatus

VERDICTS = ("fail", "retry", "skip")

# Trying again cannot help what was refused, and would undo what somebody stopped on purpose.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}


def check_policy(policy: Mapping[int | str, str] | None) -> None:
    """Raises ValueError unless every value of an `exit_code_policy` is fail, retry or skip."""
    for key, verdict in (policy or {}).items():
        if verdict not in VERDICTS:
            raise ValueError(f"exit_code_policy: {key!r}: {verdict!r} is not known; use fail, retry or skip")


def verdict(failure: Failure | None, policy: Mapping[int | str, str] | None = None) -> str:
    """What becomes of the task: `fail` (no further try), `retry` (while tries are left) or `skip`.

    Args:
        failure: why the run failed; None for a run that was lost.
        policy: exit code of the first failing rank, or failure kind, -> verdict; an exit code is looked at first.
            Default: Rejected and Cancelled fail, everything else is retried.
    """
    if failure is None:
        return "retry"
    given = {str(key): value for key, value in (policy or {}).items()}
    by_code = given.get(str(failure.exit_code)) if failure.exit_code is not None else None
    kind = failure.kind.value
    return by_code or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def failure_text(status: RunStatus) -> str:
    """What the task log says of a failed run: the diagnosis first, then the first failing rank's last lines."""
    failure = status.failure
    if failure is None:
        return f"run {status.name} was lost: nobody watched it to its end; look at the machine it ran on"
    lines = [f"run {status.name} failed: {failure.kind.value}: {failure.message}", failure.advice]
    if first := _first_to_fail(failure):
        lines.append(f"first to fail: {first}")
    if failure.error not in failure.message:
        lines.append(f"error: {failure.error}")
    if failure.restarts:
        lines.append(f"restarts before: {failure.restarts}")
    lines += [f"event: {event}" for event in failure.events]
    if failure.aftermath:
        lines.append(f"stopped because of it: {', '.join(failure.aftermath)}")
    if failure.tail:
        who = f"rank {failure.rank}" if failure.rank is not None else failure.pod or "the run"
        lines += [f"last lines of {who}:", *(f"  {line}" for line in failure.tail)]
    return "\n".join(lines)


def _first_to_fail(failure: Failure) -> str:
    """Who and how, as far as it is known."""
    parts = (
        f"rank {failure.rank}" if failure.rank is not None else "",
        f"pod {failure.pod}" if failure.pod else "",
        f"on {failure.node}" if failure.node else "",
        f"exit code {failure.exit_code}" if failure.exit_code is not None else "",
        f"signal {failure.signal}" if failure.signal is not None else "",
    )
    return ", ".join(part for part in parts if part)
