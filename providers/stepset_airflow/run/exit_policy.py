"""Decides how a completed run ends its task (fail, retry or skip), and whether its objects are deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.run_status import Failure

OUTCOMES = ("fail", "retry", "skip")

# The server would reject a retry too; a user has stopped a cancelled run.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}


def check_policy(policy: Mapping[int | str, str] | None) -> None:
    """Raises ValueError unless `policy` is a mapping whose values are fail, retry or skip."""
    if policy is not None and not isinstance(policy, Mapping):
        raise ValueError(f"exit_code_policy: {policy!r} is not a mapping; give one such as {{42: 'skip'}}")
    for key, outcome in (policy or {}).items():
        if outcome not in OUTCOMES:
            raise ValueError(f"exit_code_policy: {key!r}: {outcome!r} is not known; use fail, retry or skip")


def outcome_of(failure: Failure | None, policy: Mapping[int | str, str] | None = None) -> str:
    """Returns how the task ends: `fail` (no further try), `retry` (while tries are left) or `skip`.

    `failure` is None if the run was lost. `policy` maps exit codes of the first failing rank, which take precedence,
    and failure kinds to outcomes; default: Rejected and Cancelled fail, everything else is retried.
    """
    if failure is None:
        return "retry"
    given = {str(key): value for key, value in (policy or {}).items()}
    by_code = given.get(str(failure.exit_code)) if failure.exit_code is not None else None
    kind = failure.kind.value
    return by_code or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def skip_reason(failure: Failure | None, policy: Mapping[int | str, str] | None) -> str:
    """Returns why a task is skipped: the entry of `exit_code_policy` by which `outcome_of` decided."""
    given = {str(key): value for key, value in (policy or {}).items()}
    assert failure is not None  # a run without a failure is retried
    by_code = failure.exit_code is not None and str(failure.exit_code) in given
    what = f"exit code {failure.exit_code}" if by_code else failure.kind.value
    return f"the task is skipped, because exit_code_policy maps {what} to skip"


def should_delete(on_finish_action: str, succeeded: bool) -> bool:
    """Returns whether the objects of a completed run are deleted."""
    return on_finish_action == "delete" or (on_finish_action == "delete_succeeded" and succeeded)
