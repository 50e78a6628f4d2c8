"""States what is known about the ranks of a run that may hang: their last lines, and which ranks have exited.

A rank may print no lines in normal operation. Therefore the text does not name a rank as the cause of the hang.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepset.run_status import RankStatus, RunStatus
from stepset.watch.present.sentences import duration

SILENT = 5.0
"""The number of seconds without a line of any rank after which the ranks may hang."""
_TOGETHER = 1.0
"""If the last lines of ranks differ by less than this number of seconds, the ranks stopped printing together."""
_NAMED = 5
"""The maximum number of ranks in a message."""
_TEXT = 80
"""The maximum number of characters of the last line in a message."""


def unfinished(status: RunStatus) -> str:
    """Returns the running ranks of a run in which other ranks have exited with code 0. Returns "" if there are none.

    >>> from stepset.run_status import RankStatus
    >>> states = ["Succeeded", "Running"]
    >>> rows = [RankStatus(f"rank {n}", n, "node-0", state=state) for n, state in enumerate(states)]
    >>> unfinished(RunStatus("a-1", "a", "local", ranks=tuple(rows)))
    'rank 1'
    """
    return _named([row.source for row in _running(status)]) if _exited(status) else ""


def silence(status: RunStatus, now: float) -> str:
    """Returns what is known about the ranks of a run if no running rank prints lines at the time `now`.

    The text states how long no running rank has printed a line, and what the last line was. It lists the running ranks
    whose last lines are older. It also lists the running ranks that have printed no line, and the ranks that have
    already exited.

    If, in the last `SILENT` seconds, the run started or a rank printed a line, the text only lists the running ranks
    and the ranks that have exited. Returns "" if there are not both, or if no rank was running.

    >>> from stepset.run_status import RankStatus
    >>> rows = [RankStatus(f"rank {n}", n, "node-0", state="Running", last_line_at=at) for n, at in enumerate([60, 20])]
    >>> silence(RunStatus("a-1", "a", "local", started=10.0, ranks=tuple(rows)), 90.0)
    'no running rank had printed a line for 30 s; rank 1 printed its last line 1m10s before'
    """
    running = _running(status)
    if not running or status.started is None or now - status.started < SILENT:
        return _exit_words(status)
    printed = [row for row in running if row.last_line_at is not None]
    newest = max(printed, key=lambda row: row.last_line_at or 0.0, default=None)
    if newest is not None and _age(newest, now) < SILENT:
        return _exit_words(status)
    words = ["no running rank had printed a line"]
    if newest is not None:
        words[0] += f" for {duration(int(_age(newest, now)))}"
        words.append(f"the last line was of {newest.source}: {_short(newest.last_line)}" if newest.last_line else "")
        oldest = max(_age(row, now) for row in printed)
        words.append(_last_lines(_earlier(running), f"{duration(int(oldest))} before"))
        silent = [row.source for row in running if row.last_line_at is None]
        words.append(f"{_named(silent)} had printed no line yet, which does not prove a hang" if silent else "")
    words.append(_exit_words(status))
    return "; ".join(filter(None, words))


def quiet_sentence(seconds: float, status: RunStatus) -> str:
    """Returns that no rank of a run has printed a line, which ranks printed their last lines first, and what to do.

    If all ranks stopped printing at the same time, or if the times are unknown, the sentence names no rank.

    >>> from stepset.run_status import RankStatus
    >>> rows = [RankStatus(f"rank {n}", n, "node-0", state="Running", last_line_at=at) for n, at in enumerate([60, 20])]
    >>> quiet_sentence(120.0, RunStatus("a-1", "a", "local", ranks=tuple(rows))).rpartition("; if the run hangs")[0]
    'no rank has printed a line for 120 s; rank 1 printed its last line earlier than the others'
    """
    words = (
        f"no rank has printed a line for {seconds:.0f} s",
        _last_lines(_earlier(_running(status)), "earlier than the others"),
        "if the run hangs, `py-spy dump` in its pods shows where; set a deadline to end such runs",
    )
    return "; ".join(filter(None, words))


def _running(status: RunStatus) -> list[RankStatus]:
    return [row for row in status.ranks if row.rank is not None and row.state == "Running"]


def _exited(status: RunStatus) -> list[str]:
    return [row.source for row in status.ranks if row.rank is not None and row.state == "Succeeded"]


def _exit_words(status: RunStatus) -> str:
    """Returns which ranks have exited with code 0, and which have not. The latter may wait for the former."""
    left = unfinished(status)
    return f"{_named(_exited(status))} had exited with code 0 while {left} still ran" if left else ""


def _earlier(running: Sequence[RankStatus]) -> list[str]:
    """Returns the ranks that stopped printing first. The list is empty if all ranks stopped at the same time."""
    times = {row.source: row.last_line_at for row in running if row.last_line_at is not None}
    first = [source for source, at in times.items() if at - min(times.values()) < _TOGETHER]
    return first if len(first) < len(times) else []


def _last_lines(sources: Sequence[str], when: str) -> str:
    lines = "its last line" if len(sources) == 1 else "their last lines"
    return f"{_named(sources)} printed {lines} {when}" if sources else ""


def _age(row: RankStatus, now: float) -> float:
    return now - (row.last_line_at or 0.0)


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _named(sources: Sequence[str]) -> str:
    more = len(sources) - _NAMED
    return ", ".join(sources[:_NAMED]) + (f" and {more} more" if more > 0 else "")
