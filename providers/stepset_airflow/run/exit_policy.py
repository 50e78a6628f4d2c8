"""Decides how the task ends after the run has finished, and whether the objects of the run are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stepset_airflow.run.exit_policy_keys import code_of, parse_key

if TYPE_CHECKING:
    from stepset.run_status import Failure

OUTCOMES = ("fail", "retry", "skip")

# After Rejected, a retry would be rejected again. After Cancelled, a retry would restart a run that a user stopped.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}


def check_policy(policy: Mapping[int | str, str] | None) -> None:
    """Raises ValueError unless `policy` is a valid mapping. The error has one line for each problem.

    The keys are exit codes, signals and kinds of failures (`parse_key`). The values are `fail`, `retry` and `skip`.
    """
    if policy is not None and not isinstance(policy, Mapping):
        raise ValueError(f"exit_code_policy: {policy!r} is not a mapping; give one such as {{42: 'skip'}}")
    if problems := list(_problems(policy or {})):
        raise ValueError("\n".join(f"exit_code_policy: {problem}" for problem in problems))


def _problems(policy: Mapping[int | str, str]) -> Iterator[str]:
    meanings: dict[int | str, tuple[object, str]] = {}
    for key, outcome in policy.items():
        if outcome not in OUTCOMES:
            yield f"{key!r}: {outcome!r} is not known; use fail, retry or skip"
        try:
            meaning = parse_key(key)
        except ValueError as error:
            yield str(error)
            continue
        other, given = meanings.setdefault(meaning, (key, outcome))
        if given != outcome:
            yield f"{other!r} and {key!r} mean the same, but map to {given} and {outcome}; leave one out"


def outcome_of(failure: Failure | None, policy: Mapping[int | str, str] | None = None) -> str:
    """Returns how the task ends if its run did not succeed.

    Args:
        failure: the failure of the run. None if the run was lost.
        policy: a mapping from exit codes or signals of the first failing rank, or from kinds of failures, to outcomes.
            An entry for the exit code or the signal takes precedence over an entry for the kind.

    Returns:
        `fail` (no further try), `retry` (another try if the number of retries permits another try) or `skip`. If
            `policy` has no
        entry for the failure, the outcome is `fail` for Rejected and Cancelled, and `retry` for all other failures.
    """
    if failure is None:
        return "retry"
    given = {parse_key(key): value for key, value in (policy or {}).items()}
    code, kind = code_of(failure), failure.kind.value
    return (given.get(code) if code is not None else None) or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def skip_reason(failure: Failure | None, policy: Mapping[int | str, str] | None) -> str:
    """Returns a sentence that states which entry of `exit_code_policy` causes the task to be skipped."""
    from stepset.watch.diagnose import signal_name

    assert failure is not None  # for a lost run, `failure` is None, and the outcome is `retry`
    code = code_of(failure)
    if code is None or code not in map(parse_key, policy or {}):
        what = failure.kind.value
    else:
        what = f"exit code {code}" if failure.signal is None else signal_name(failure.signal)
    return f"the task is skipped, because exit_code_policy maps {what} to skip"


def should_delete(on_finish_action: str, succeeded: bool) -> bool:
    """Returns whether the objects of a completed run must be deleted."""
    return on_finish_action == "delete" or (on_finish_action == "delete_succeeded" and succeeded)
