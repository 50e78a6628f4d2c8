"""Decides how the task ends after the run has finished, and whether the objects of the run are deleted."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.run_status import Failure

OUTCOMES = ("fail", "retry", "skip")

# After Rejected, a retry would be rejected again. After Cancelled, a retry would restart a run that a user stopped.
_FINAL_KINDS = {"Rejected": "fail", "Cancelled": "fail"}
_SIGNALED = 128
"""The exit code of a process that signal N ended is 128 + N (POSIX.1-2024, Shell Command Language, 2.8.2)."""
_LAST_SIGNAL = 64
_LAST_CODE = 255
_NUMBER = re.compile(r"-?[1-9][0-9]{0,8}")
_OTHER_NAMES = {
    "cudaoom": "OutOfMemory",
    "evicted": "Infrastructure",
    "preempted": "Infrastructure",
    "nodelost": "Infrastructure",
    "errimagepull": "ImagePull",
    "error": "UserError",
    "exception": "UserError",
    "failed": "UserError",
    "trainingfailed": "UserError",
    "interrupted": "Cancelled",
    "memoryerror": "OutOfMemory",
    "nccl": "Rendezvous",
    "oom": "OutOfMemory",
    "oomkilled": "OutOfMemory",
    "pending": "Unschedulable",
    "timedout": "DeadlineExceeded",
    "timeout": "DeadlineExceeded",
}
"""Names that other programs use for a kind of failure, in lower case. A message about such a key names the kind."""


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
        `policy` has no entry for the failure, the outcome is `fail` for Rejected and Cancelled, and `retry` for all
        other failures.
    """
    if failure is None:
        return "retry"
    given = {parse_key(key): value for key, value in (policy or {}).items()}
    code, kind = code_of(failure), failure.kind.value
    return (given.get(code) if code is not None else None) or given.get(kind) or _FINAL_KINDS.get(kind, "retry")


def skip_reason(failure: Failure | None, policy: Mapping[int | str, str] | None) -> str:
    """Returns a sentence that states which entry of `exit_code_policy` causes the task to be skipped."""
    from stepset.watch.present.process_end import signal_name

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


def parse_key(key: object) -> int | str:
    """Returns the exit code or the kind of failure that a key of `exit_code_policy` means.

    If signal N ended a process, a shell and a container report the exit code 128 + N. Python's subprocess and torchrun
    report -N. Both numbers and the signal's name are the same key.

    Args:
        key: an exit code from 1 to 255; a signal as its name with or without `SIG`, as a negative number or as a member
            of `signal.Signals`; or a kind of failure. Numbers may be text, because the keys of a JSON object are text.

    Raises:
        ValueError: no failure can match the key. The message names the nearest key that can match.

    >>> parse_key(42), parse_key("42"), parse_key("SIGKILL"), parse_key(-9), parse_key("OutOfMemory")
    (42, 42, 137, 137, 'OutOfMemory')
    """
    if isinstance(key, signal.Signals):
        return _SIGNALED + key
    if isinstance(key, str):
        if key in _kinds():
            return str(key)
        if (named := _named_signals().get(key)) is not None:
            return _SIGNALED + named
    number = _number(key)
    if number is None:
        raise ValueError(f"{key!r} is neither an exit code, a signal nor a kind of failure; {_hint(key)}")
    if -_LAST_SIGNAL <= number < 0:
        return _SIGNALED - number
    if not 0 < number <= _LAST_CODE:
        raise ValueError(
            f"{key!r} is the exit code of no failure; use a number from 1 to {_LAST_CODE}, or -N for signal N"
        )
    return number


def code_of(failure: Failure) -> int | None:
    """Returns the exit code of the process that failed first. For signal N, this is 128 + N."""
    return _SIGNALED + failure.signal if failure.signal is not None else failure.exit_code


def _number(key: object) -> int | None:
    if isinstance(key, int) and not isinstance(key, bool):
        return int(key)
    return int(key) if isinstance(key, str) and _NUMBER.fullmatch(key) else 0 if key == "0" else None


def _hint(key: object) -> str:
    """Returns the nearest key that can match, or all kinds of keys if no key is near."""
    text = str(key).strip()
    if isinstance(key, float) and key.is_integer():
        return f"did you mean {int(key)}?"
    if isinstance(key, str) and re.fullmatch(r"[-+]?[0-9]+", text):
        return f"did you mean {str(int(text))!r}?"
    known = {name.lower(): name for name in (*_kinds(), *(each for each in _named_signals() if each.startswith("SIG")))}
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    near = _OTHER_NAMES.get(word) or next((known[each] for each in get_close_matches(word, known, n=1)), None)
    if near is not None and isinstance(key, str):
        return f"did you mean {near!r}?"
    return (
        f"use a number from 1 to {_LAST_CODE}, a signal such as 'SIGKILL' or -9, or one of the kinds"
        f" {', '.join(sorted(_kinds()))}"
    )


def _kinds() -> tuple[str, ...]:
    from stepset.run_status import FailureKind

    return tuple(kind.value for kind in FailureKind)


def _named_signals() -> dict[str, int]:
    """Returns the signals by their names, with and without `SIG`."""
    members = signal.Signals.__members__
    return {name: int(each) for full, each in members.items() for name in (full, full.removeprefix("SIG"))}
