"""Creates the first line in the log of a try.

The line states why the task is executed again, and what this execution does.
"""

from __future__ import annotations

from collections.abc import Callable

from stepset_airflow.run_record import RETRY, START_NEW, Finished, Reattach, RunRecord, StartNew

_CLEARED = "this try starts a new training, because the task was cleared"


def try_reason(
    step: Reattach | Finished | StartNew,
    record: RunRecord | None,
    epoch: int,
    try_number: int,
    failure: Callable[[str], str],
) -> str | None:
    """Returns the line, or None for the first execution of a task.

    Args:
        step: the next step of the execution, which `next_step` returned.
        record: the stored record of the task. None if no record is stored.
        epoch: the try number at which the task was last cleared. 0 if the task was never cleared.
        failure: a function that takes the name of a run, and returns why this run failed. If the reason is unknown, the
            function returns an empty string.
    """
    if isinstance(step, Finished):
        return (
            f"this try ends the task as recorded ({step.record.ended}), because run {step.record.name} is over, and an"
            " earlier worker ended before the task did"
        )
    if isinstance(step, Reattach):
        name = step.record.name
        if step.record.uid:
            return f"this try follows run {name}, because an earlier worker of this task started it and ended before it"
        return f"this try finds or creates run {name}, because an earlier worker of this task ended while it created it"
    if record is None:
        first = "this try starts the first run, because no earlier try created one" if try_number > 1 else None
        return _CLEARED if epoch else first
    if record.epoch != epoch or record.ended == START_NEW:
        return _CLEARED
    if record.ended == RETRY:
        return _after(failure(record.name) or f"run {record.name} of an earlier try did not succeed")
    return f"this try starts another run, because durable is False; run {record.name} of an earlier try is ended first"


def local_try_reason(attempt: int, epoch: int, failure: Callable[[], str]) -> str | None:
    """Returns the line for a task with a local run, or None for the first execution of a task.

    Each try of such a task starts a new run, because a local run ends with its worker.

    Args:
        attempt: the number of earlier tries since the task was last cleared.
        epoch: the try number at which the task was last cleared. 0 if the task was never cleared.
        failure: a function that returns why the run of the last try failed. If the reason is unknown, the function
            returns an empty string.
    """
    if attempt:
        return _after(failure() or "an earlier try did not succeed")
    return _CLEARED if epoch else None


def _after(failure: str) -> str:
    return f"this try starts another run, because {failure}"
