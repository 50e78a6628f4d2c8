"""Decides how a run that is over ends its task (fail, retry or skip), and whether its objects are deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.watch.state import Failure

VERDICTS = ("fail", "retry", "skip")

# A retry would be refused again, or start what a user has stopped on purpose.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}


def check_policy(policy: Mapping[int | str, str] | None) -> None:
    """Raises ValueError unless every value of an `exit_code_policy` is fail, retry or skip."""
    for key, verdict in (policy or {}).items():
        if verdict not in VERDICTS:
            raise ValueError(f"exit_code_policy: {key!r}: {verdict!r} is not known; use fail, retry or skip")


def verdict(failure: Failure | None, policy: Mapping[int | str, str] | None = None) -> str:
    """Returns what happens to the task: `fail` (no further try), `retry` (while tries are left) or `skip`.

    `failure` is None if the run was lost. `policy` maps an exit code of the first failing rank, which comes first, or a
    failure kind to a verdict; default: Rejected and Cancelled fail, everything else is retried.
    """
    if failure is None:
        return "retry"
    given = {str(key): value for key, value in (policy or {}).items()}
    by_code = given.get(str(failure.exit_code)) if failure.exit_code is not None else None
    kind = failure.kind.value
    return by_code or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def should_delete(on_finish_action: str, succeeded: bool) -> bool:
    """Whether the objects of a run that is over are deleted."""
    return on_finish_action == "delete" or (on_finish_action == "delete_succeeded" and succeeded)
