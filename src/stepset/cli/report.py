"""A run's state in words: the status line, the last line, the failure block. Pure; used by run and the run commands."""

from __future__ import annotations

import json
import time

from stepset.cli.terminal import painted, printable
from stepset.cli.words import counted
from stepset.watch.report import failure_lines, what_happened
from stepset.watch.state import Failure, FailureKind, Phase, Progress, RunStatus

_RED, _GREEN, _BOLD = "1;31", "1;32", "1"


def in_words(seconds: float) -> str:
    """A length of time for people.

    >>> in_words(3.21), in_words(7), in_words(75), in_words(3720)
    ('3.2 s', '7 s', '1m15s', '1h02m')
    """
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{secs:02}s"


def took(status: RunStatus, now: float | None = None) -> float:
    """Seconds from a run's creation to its end, or to now (seconds since the epoch)."""
    return (status.finished or now or time.time()) - status.created


def ranks_in_words(status: RunStatus) -> str:
    """How many ranks are at work, or are done, such as `3/4 ranks running`; nodes where nobody can tell ranks apart."""
    states, what = [row.state for row in status.ranks if row.rank is not None], "ranks"
    total = status.world_size or len(states)
    nodes = [row.state for row in status.ranks if row.source.startswith("node ")]
    if nodes and not states:
        states, what, total = nodes, "nodes", len(nodes)
    if not total:
        return ""
    if status.phase.final:
        return f"{states.count('Succeeded')}/{total} {what} succeeded"
    return f"{states.count('Running')}/{total} {what} running"


def progress_in_words(progress: Progress | None) -> str:
    """What the training code said of itself, such as `40 %, step 120, loss 0.31`."""
    if progress is None:
        return ""
    parts = [] if progress.progress is None else [f"{100 * progress.progress:.0f} %"]
    parts += [] if progress.step is None else [f"step {progress.step}"]
    parts += [f"{printable(name)} {value:.5g}" for name, value in progress.metrics.items()]
    return ", ".join(parts)


def state_line(status: RunStatus) -> str:
    """Phase, ranks and progress in one line, without times, so that it changes only when the run does."""
    phase = f"{status.phase.value} ({status.reason})" if status.reason else status.phase.value
    restarts = f"restart {status.attempt}" if status.attempt else ""
    return ", ".join(p for p in (phase, restarts, ranks_in_words(status), progress_in_words(status.progress)) if p)


def result_text(status: RunStatus) -> str:
    """The result as one line of JSON."""
    return json.dumps(status.result, ensure_ascii=False)


def outcome(status: RunStatus, colour: bool = False, where: str = "") -> str:
    """How a run ended, or where it is: one line, and the failure block when it failed.

    Args:
        status: the run's.
        colour: whether to colour.
        where: the flags by which other commands find the run, as `Where.said`.
    """
    spent = in_words(took(status))
    if status.phase is Phase.SUCCEEDED:
        result = "" if status.result is None else f"; result: {printable(result_text(status))}"
        restarts = f" after {counted(status.attempt, 'restart')}" if status.attempt else ""
        return f"stepset: {status.name} {painted('succeeded', _GREEN, colour)} in {spent}{restarts}{result}"
    if not status.phase.final:
        so_far = f"stepset: {status.name} is not over: {state_line(status)}, {spent} so far"
        return "\n".join([so_far, *_trouble_lines(status, colour)])
    if status.failure is None:
        ended_as = painted(status.phase.value.lower(), _RED, colour)
        see = f"see 'stepset logs {status.name}{where}'"
        return f"stepset: {status.name} {ended_as} after {spent}; no reason is known, {see}"
    if status.failure.kind is FailureKind.CANCELLED:
        return f"stepset: {status.name} {painted('was cancelled', _RED, colour)} after {spent}"
    ranks = "" if status.failure.rank is None else f" --ranks {status.failure.rank}"
    return "\n".join(_failure_block(status, status.failure, spent, colour, f"{where}{ranks}"))


def _trouble_lines(status: RunStatus, colour: bool) -> list[str]:
    """What keeps a run from going on, and what to do about it."""
    trouble = status.trouble
    if trouble is None:
        return []
    rows = (("trouble", what_happened(trouble)), ("events", "; ".join(trouble.events)), ("advice", trouble.advice))
    return [f"  {painted(title.ljust(14), _BOLD, colour)}{printable(text)}" for title, text in rows if text]


def _failure_block(status: RunStatus, failure: Failure, spent: str, colour: bool, flags: str) -> list[str]:
    def name(title: str) -> str:
        return painted(title, _BOLD, colour)

    heading = (
        f"stepset: {status.name} {painted('failed', _RED, colour)} after {spent}: {printable(what_happened(failure))}"
    )
    more = f"  {name('more'.ljust(14))}stepset logs {status.name}{flags}"
    return [heading, *failure_lines(failure, name, printable), more]
