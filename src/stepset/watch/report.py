"""Why a run failed, in words: the same block at every door. Pure.

Used by the command line, by Airflow's operator and by KFP's component, each with its own heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stepset.watch.state import Failure, RunStatus

_WIDTH = 14


def failure_text(status: RunStatus) -> str:
    """What a log says of a run that did not succeed: what happened first, then what is known of it.

    Args:
        status: of a run that is over.

    >>> print(failure_text(RunStatus("digits-1", "digits", "local")))
    run digits-1 was lost: nobody watched it to its end; look at the machine it ran on
    """
    failure = status.failure
    if failure is None:
        return f"run {status.name} was lost: nobody watched it to its end; look at the machine it ran on"
    return "\n".join([f"run {status.name} failed: {what_happened(failure)}", *failure_lines(failure)])


def what_happened(failure: Failure) -> str:
    """The kind of a failure, and what happened, in one line."""
    return f"{failure.kind.value}: {failure.message}"


def failure_lines(failure: Failure, name: Callable[[str], str] = str, text: Callable[[str], str] = str) -> list[str]:
    """All that is known of a failure, as rows of a name and lines.

    Args:
        failure: of a run.
        name: how the rows' names are shown, such as painted.
        text: how what others have written is shown, such as without control characters.
    """
    lines = []
    for title, values in failure_rows(failure):
        head, rest = f"  {name(f'{title:<{_WIDTH}}')}", " " * (_WIDTH + 2)
        lines += [f"{rest if number else head}{text(value)}" for number, value in enumerate(values)]
    return lines


def failure_rows(failure: Failure) -> Iterator[tuple[str, list[str]]]:
    """The rows of `failure_lines`; those of which nothing is known are left out."""
    restarts = failure.restarts
    rows = (
        ("first failure", [first_failure(failure)]),
        ("error", failure.error.splitlines()),
        ("last lines", list(failure.tail)),
        ("events", list(failure.events)),
        ("restarts", [f"{restarts} restart{'' if restarts == 1 else 's'}" if restarts else ""]),
        ("aftermath", [f"{', '.join(failure.aftermath)}: stopped because of it" if failure.aftermath else ""]),
        ("advice", [failure.advice]),
    )
    for title, values in rows:
        if kept := [value for value in values if value]:
            yield title, kept


def first_failure(failure: Failure) -> str:
    """Who failed first and how, such as `rank 3, pod node-1, exit code 1`; empty where nothing is known."""
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
