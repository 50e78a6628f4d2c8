"""Combines the lines of a followed run with the states of its incomplete lines, such as progress bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepset.run_status import LogLine
from stepset.watch.lines import Batch, OpenLine

LiveLine = LogLine | OpenLine
"""A complete line, or what an incomplete line currently shows. An `OpenLine` with an empty text means that the source
has no incomplete line."""


def open_states(before: Mapping[str, str], batch: Batch) -> dict[str, str]:
    """Returns the state of each source's incomplete line after a chunk of the output of a pod.

    If the chunk contains a complete line of a source, or a part of such a line, the state of this source is removed.

    Args:
        batch: the content of the chunk.
    """
    states, at = dict(before), 0
    for position, item in (*batch.between, (len(batch.lines), None)):
        for head, _ in batch.lines[at:position] if states else ():
            states.pop(head.source, None)
        at = position
        if isinstance(item, OpenLine):
            states[item.source] = item.text
    return states


def live_block(
    lines: Iterable[LogLine], before: Mapping[str, str], states: Mapping[str, str], sources: frozenset[str] | None
) -> list[LiveLine]:
    """Returns complete lines, and then the states of incomplete lines that have changed.

    Args:
        before, states: the state of each source's incomplete line at the end of the last block, and now.
        sources: the sources whose lines are returned. None means all sources.
    """
    changed = {**dict.fromkeys(before, ""), **states}
    found: list[LiveLine] = [*lines]
    found += [OpenLine(source, text) for source, text in changed.items() if text != before.get(source)]
    return [line for line in found if sources is None or line.source in sources]
