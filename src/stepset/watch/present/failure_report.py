"""Creates the block of text that states why a run failed. All interfaces show this text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stepset.agent.errors import OWN_CODES
from stepset.printable import printable
from stepset.run_status import Failure, FailureKind, RunStatus
from stepset.watch.present.sentences import Style, counted, end_sentence

_WIDTH = 14
_STOPPED = "stopped because of it"
_COMMAND = "stepset failures"
"""The command that prints the causes and remedies of a kind of failure."""


def failure_text(status: RunStatus, *, advice: bool = True) -> str:
    """Returns how an unsuccessful run finished, and the details of its first failure.

    Args:
        advice: whether the text contains advice on how to prevent the failure.

    >>> print(failure_text(RunStatus("digits-1", "digits", "local")))
    run digits-1 failed; no reason is known
    """
    failure = status.failure
    if failure is not None and not advice:
        failure = replace(failure, advice="")
    lines = [] if failure is None else failure_lines(failure)
    return "\n".join([end_sentence(status), *lines])


def failure_lines(failure: Failure, name: Style = str) -> list[str]:
    """Returns the details of a failure as lines of text. The text consists of rows, which have a name and values.

    Args:
        name: a function that formats the names of the rows, for example with a colour.
    """
    return [line for title, values in failure_rows(failure) for line in row_lines(title, values, name)]


def row_lines(title: str, values: list[str], name: Style = str) -> list[str]:
    """Returns the lines of one row of `failure_lines`. The first line contains the name and the first value."""
    head, rest = f"  {name(f'{title:<{_WIDTH}}')}", " " * (_WIDTH + 2)
    return [f"{rest if number else head}{printable(value)}" for number, value in enumerate(values)]


def failure_rows(failure: Failure) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of `failure_lines`, without empty rows.

    There is no row `error` if the error is the beginning of the message. For example, if a run has
    exceeded its deadline, it is not known which rank failed first. The message then begins with the error.
    """
    restarts = failure.restarts
    error = "" if failure.message.startswith(failure.error.rstrip(".")) else failure.error
    rows = (
        ("first failure", [first_failure(failure)]),
        ("error", error.splitlines()),
        ("frame", [failure.frame]),
        ("last lines", list(failure.tail)),
        ("events", list(failure.events)),
        ("restarts", [counted(restarts, "restart") if restarts else ""]),
        (
            "aftermath",
            [_joined(failure.same_error, "failed with the same error"), _joined(failure.aftermath, _STOPPED)],
        ),
        ("advice", [failure.advice]),
        ("see", [f"{_COMMAND} {failure.kind.value}" if failure.advice else ""]),
    )
    for title, values in rows:
        if kept := [value for value in values if value]:
            yield title, kept


def _joined(sources: Sequence[str], what: str) -> str:
    return f"{', '.join(sources)}: {what}" if sources else ""


def rank_to_read(status: RunStatus) -> int | None:
    """Returns the rank whose lines show the cause of a failure.

    Returns None if no rank failed, or if the rank never ran because another container of its pod failed. Then the exit
    code is that of the other container, and the row of the rank has no exit code.
    """
    failure = status.failure
    if failure is None:
        return None
    rank = failure.rank if failure.early_exit is None else failure.early_exit
    row = next((row for row in status.ranks if row.rank == rank), None)
    never_ran = row is not None and row.state == "Failed" and row.exit_code is None and row.signal is None
    return None if never_ran and failure.exit_code is not None else rank


def first_failure(failure: Failure) -> str:
    """Returns what failed first and how, such as `rank 3, pod node-1, exit code 1`. Returns "" if this is unknown.

    If the agent rejected the result of a rank that succeeded, the exit code is that of the agent.
    """
    own = failure.kind is FailureKind.REJECTED and failure.exit_code in OWN_CODES
    parts = (
        "" if failure.rank is None else f"rank {failure.rank}",
        f"pod {failure.pod}" if failure.pod else "",
        f"on {failure.node}" if failure.node else "",
        ended(failure.exit_code, failure.signal) + (" of stepset's agent" if own else ""),
    )
    return ", ".join(part for part in parts if part)


def ended(exit_code: int | None, signal_number: int | None) -> str:
    """Returns the result of a process, such as `exit code 1` or `signal 9 (SIGKILL)`, or "" while the process runs."""
    if signal_number is not None:
        from signal import Signals

        known = {int(each): each.name for each in Signals}
        return f"signal {signal_number} ({known.get(signal_number, 'unknown')})"
    return "" if exit_code is None else f"exit code {exit_code}"
