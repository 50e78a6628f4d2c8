"""The results of the checks of `stepset doctor`, and the exit code of `stepset doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from stepset.errors import StepsetError
from stepset.exit_code import ExitCode

State = Literal["ok", "note", "problem", "unreachable"]
"""The result of a check.

`note` means that there is no problem, but something may be missing. `unreachable` means that the check was not
possible."""


class Finding(TypedDict):
    """The result of one check. `fix` is the command or the change that fixes a problem; empty if no fix is known."""

    check: str
    state: State
    text: str
    fix: str


def finding(check: str, state: State, text: str, fix: str = "") -> Finding:
    """Returns the result of one check."""
    return {"check": check, "state": state, "text": text, "fix": fix}


def no_connection(state: State, error: StepsetError) -> Finding:
    """Returns the result of a check of a cluster that ended with `error`. A message ends with its remedy."""
    text, _, fix = str(error).rpartition("; ")
    return finding("cluster", state, text or fix, fix if text else "kubectl cluster-info")


def exit_code(found: Sequence[Finding]) -> ExitCode:
    """Returns the exit code of `stepset doctor`.

    The exit code is 3 if a check was not possible. Otherwise the exit code is 1 if there is a problem, and 0 if there
    is no problem.
    """
    states = {each["state"] for each in found}
    if "unreachable" in states:
        return ExitCode.INFRASTRUCTURE
    return ExitCode.TRAINING_FAILED if "problem" in states else ExitCode.SUCCESS
