"""Why a run failed, as a block of text that all interfaces share. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from stepset.printable import printable
from stepset.run_status import Failure, RunStatus
from stepset.watch.present.sentences import Style, counted, end_sentence

_WIDTH = 14


def failure_text(status: RunStatus) -> str:
    """How an unsuccessful run ended, and the details of its first failure.

    >>> print(failure_text(RunStatus("digits-1", "digits", "local")))
    run digits-1 failed; no reason is known
    """
    lines = [] if status.failure is None else failure_lines(status.failure)
    return "\n".join([end_sentence(status), *lines])


def failure_lines(failure: Failure, name: Style = str) -> list[str]:
    """The details of a failure as lines of text: rows with a name and values.

    `name` formats the rows' names, for example with a colour.
    """
    return [line for title, values in failure_rows(failure) for line in row_lines(title, values, name)]


def row_lines(title: str, values: list[str], name: Style = str) -> list[str]:
    """The lines of one row of `failure_lines`: the name and the first value, then the other values."""
    head, rest = f"  {name(f'{title:<{_WIDTH}}')}", " " * (_WIDTH + 2)
    return [f"{rest if number else head}{printable(value)}" for number, value in enumerate(values)]


def failure_rows(failure: Failure) -> Iterator[tuple[str, list[str]]]:
    """The rows of `failure_lines`, without empty ones."""
    restarts = failure.restarts
    rows = (
        ("first failure", [first_failure(failure)]),
        ("error", failure.error.splitlines()),
        ("last lines", list(failure.tail)),
        ("events", list(failure.events)),
        ("restarts", [counted(restarts, "restart") if restarts else ""]),
        ("aftermath", [f"{', '.join(failure.aftermath)}: stopped because of it" if failure.aftermath else ""]),
        ("advice", [failure.advice]),
    )
    for title, values in rows:
        if kept := [value for value in values if value]:
            yield title, kept


def first_failure(failure: Failure) -> str:
    """What failed first and how, such as `rank 3, pod node-1, exit code 1`; empty if unknown."""
    parts = (
        "" if failure.rank is None else f"rank {failure.rank}",
        f"pod {failure.pod}" if failure.pod else "",
        f"on {failure.node}" if failure.node else "",
        ended(failure.exit_code, failure.signal),
    )
    return ", ".join(part for part in parts if part)


def ended(exit_code: int | None, signal_number: int | None) -> str:
    """How a process ended, such as `exit code 1` or `signal 9 (SIGKILL)`; empty while it runs."""
    if signal_number is not None:
        from signal import Signals

        known = {int(each): each.name for each in Signals}
        return f"signal {signal_number} ({known.get(signal_number, 'unknown')})"
    return "" if exit_code is None else f"exit code {exit_code}"
