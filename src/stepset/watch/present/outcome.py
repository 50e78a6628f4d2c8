"""Creates the text that `stepset diagnose` prints. Contains only pure functions."""

from __future__ import annotations

import json

from stepset.printable import printable
from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.present.failure_report import failure_lines, row_lines
from stepset.watch.present.hang import slow_words
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import (
    Style,
    duration,
    end_sentence,
    logs_values,
    state_line,
)


def result_text(status: RunStatus) -> str:
    """Returns the result of a run as one line of JSON."""
    return json.dumps(status.result, ensure_ascii=False)


def outcome_lines(
    status: RunStatus,
    took: float,
    *,
    logs: str,
    flags: str | None = None,
    resume: str = "",
    title: Style = str,
    verb: Style = str,
) -> list[str]:
    """Returns a sentence about the final or current state of a run, and then the rows of its diagnosis or problem.

    Args:
        took: the number of seconds from the creation of the run until it finished, or until now.
        logs: how a user can read the lines of the run.
        flags: those of `command_for`.
        resume: how a user can continue the run from its last checkpoint, one line for each way. Empty if there is no
            checkpoint.
        title: a function that formats the names of the rows, for example with a colour.
        verb: a function that formats the verb of the final state.
    """
    slow = [] if status.slow is None else row_lines("slow", [slow_words(status.slow)], title)
    if not status.phase.final:
        held = held_up(status, flags)
        rows = held.rows if held is not None else ()
        why = [line for name, text in rows for line in row_lines(name, [text], title)]
        state = f"{printable(state_line(status))}, {duration(took)} so far"
        return [f"run {printable(status.name)} is not over: {state}", *why, *slow]
    end = end_sentence(status, style=verb)
    if status.phase is Phase.SUCCEEDED:
        return [end + ("" if status.result is None else f"; result: {printable(result_text(status))}"), *slow]
    failure = status.failure
    again = slow + row_lines("resume", resume.splitlines(), title)
    if failure is not None and failure.kind is FailureKind.CANCELLED:
        return [end, *again]
    known = [] if failure is None else failure_lines(failure, title)
    return [end, *known, *again, *row_lines("logs", logs_values(status, logs), title)]
