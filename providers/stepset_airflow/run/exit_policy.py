"""Decides how the task ends after the run has finished, and whether the objects of the run are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.run_status import Failure

OUTCOMES = ("fail", "retry", "skip")

# After Rejected, a retry would be rejected again. After Cancelled, a retry would restart a run that a user stopped.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}


def check_policy(policy: Mapping[int | str, str] | None) -> None:
    """Raises ValueError unless `policy` is a valid mapping.

    The keys are exit codes and kinds of failures. The values are `fail`, `retry` and `skip`.
    """
    if policy is not None and not isinstance(policy, Mapping):
        raise ValueError(f"exit_code_policy: {policy!r} is not a mapping; give one such as {{42: 'skip'}}")
    for key, outcome in (policy or {}).items():
        if outcome not in OUTCOMES:
            raise ValueError(f"exit_code_policy: {key!r}: {outcome!r} is not known; use fail, retry or skip")
        if not str(key).isdecimal():
            _check_kind(key)


def _check_kind(name: object) -> None:
    """Raises ValueError unless `name` is a kind of failure."""
    from stepset.run_status import FailureKind
    from stepset.spec.base import nearest

    kinds = [kind.value for kind in FailureKind]
    if name not in kinds:
        hint = nearest(str(name), kinds)
        raise ValueError(f"exit_code_policy: {name!r} is neither an exit code nor a kind of failure; {hint}")


def outcome_of(failure: Failure | None, policy: Mapping[int | str, str] | None = None) -> str:
    """Returns how the task ends if its run did not succeed.

    Args:
        failure: the failure of the run. None if the run was lost.
        policy: a mapping from exit codes of the first failing rank, or from kinds of failures, to outcomes. An entry
            for the exit code takes precedence over an entry for the kind.

    Returns:
        `fail` (no further try), `retry` (another try if the number of retries permits it) or `skip`. If `policy` has no
        entry for the failure, the outcome is `fail` for Rejected and Cancelled, and `retry` for all other failures.
    """
    if failure is None:
        return "retry"
    given = {str(key): value for key, value in (policy or {}).items()}
    by_code = given.get(str(failure.exit_code)) if failure.exit_code is not None else None
    kind = failure.kind.value
    return by_code or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def skip_reason(failure: Failure | None, policy: Mapping[int | str, str] | None) -> str:
    """Returns a sentence that states which entry of `exit_code_policy` causes the task to be skipped."""
    given = {str(key): value for key, value in (policy or {}).items()}
    assert failure is not None  # for a lost run, `failure` is None, and the outcome is `retry`
    by_code = failure.exit_code is not None and str(failure.exit_code) in given
    what = f"exit code {failure.exit_code}" if by_code else failure.kind.value
    return f"the task is skipped, because exit_code_policy maps {what} to skip"


def should_delete(on_finish_action: str, succeeded: bool) -> bool:
    """Returns whether the objects of a completed run must be deleted."""
    return on_finish_action == "delete" or (on_finish_action == "delete_succeeded" and succeeded)
