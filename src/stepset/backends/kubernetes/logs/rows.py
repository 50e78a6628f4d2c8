"""Converts one pod's log to rows with times. A row has the form `[source] text`. `merge.py` merges the rows.

The functions process blocks of lines, not single lines, because many ranks may print at the same time.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from itertools import accumulate

from stepset.backends.kubernetes.logs.merge import Block
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.watch.lines import PART_LIMIT, Joiner, Splitter
from stepset.watch.log_cursor import second_of
from stepset.watch.reported import parse_report

_REGULAR = re.compile(rb"\[(?:(?:rank|node) \d+|(?!stepset\])[a-z][-a-z0-9]*)\] (?!\{)")
"""Matches lines of the agent that need no change. A line that does not match may be an event, a part of a line or a
progress report."""
_SECOND = len(b"2006-01-02T15:04:05")
_ZONE = len(b"2006-01-02T15:04:05.000000000")


async def rows_of(
    pod: LogPod, stamped: AsyncIterable[bytes], sources: frozenset[str] | None
) -> AsyncGenerator[Block, None]:
    """Yields the rows of a pod's log. Joins the parts of long lines, and omits events and progress reports.

    Args:
        pod: the pod.
        stamped: the chunks of the pod's log that a `LogCursor(stamped=True)` has returned.
        sources: the sources whose rows are needed. None means all sources.
    """
    reader = _Reader(pod, sources)
    async for chunk in stamped:
        if (block := reader.feed(chunk))[1]:
            yield block
    if (block := reader.finish())[1]:
        yield block


class _Reader:
    def __init__(self, pod: LogPod, sources: frozenset[str] | None) -> None:
        self._heads = None if sources is None else tuple(b"[%s] " % source.encode() for source in sorted(sources))
        self._own = None if pod.agent else b"[%s] " % pod.source.encode()
        self._splitter, self._joiner = Splitter(pod.source), Joiner()
        self._rest = b""
        self._latest = b""

    def feed(self, chunk: bytes) -> Block:
        """Returns the rows that a chunk completes."""
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], data[end:]
        if len(self._rest) > PART_LIMIT:
            # Split a very long line into several lines with the same time.
            whole += self._rest + b"\n"
            self._rest = self._rest[: self._rest.index(b" ") + 1]
        if not whole:
            return [], []
        lines = whole.split(b"\n")
        lines.pop()
        return self._ordered(*self._wanted(*self._shown(*_timed(lines))))

    def finish(self) -> Block:
        """Returns the rows of incomplete lines."""
        if self._own is not None:
            return [], []
        rows = list(self._joined(b""))
        return self._wanted([self._latest] * len(rows), rows)

    def _wanted(self, times: list[bytes], rows: list[bytes]) -> Block:
        if self._heads is None:
            return times, rows
        kept = [number for number, row in enumerate(rows) if row.startswith(self._heads)]
        return [times[number] for number in kept], [rows[number] for number in kept]

    def _ordered(self, times: list[bytes], rows: list[bytes]) -> Block:
        """Makes the times non-decreasing. A time that is too early is replaced by the latest previous time.

        The lines of stdout and stderr may be slightly out of order.
        """
        if times and (times[0] < self._latest or times != sorted(times)):
            times = list(accumulate([self._latest, *times], max))[1:]
        if times:
            self._latest = times[-1]
        return times, rows

    def _shown(self, times: list[bytes], texts: list[bytes]) -> Block:
        """Returns the rows with their sources. Joins the parts of lines, and omits events and progress reports."""
        if (own := self._own) is not None:
            rows = [own + text for text in texts]
            reports = [n for n, text in enumerate(texts) if text[:1] == b"{" and parse_report(text)]
            for number in reversed(reports):
                del times[number], rows[number]
            return times, rows
        if not self._joiner.waiting and all(map(_REGULAR.match, texts)):
            return times, texts
        irregular = [number for number, text in enumerate(texts) if not _REGULAR.match(text)]
        shown_times, shown = [], []
        following, start = iter(irregular), 0
        while True:
            if not self._joiner.waiting:
                end = next((number for number in following if number >= start), len(texts))
                shown_times += times[start:end]
                shown += texts[start:end]
                start = end
            if start == len(texts):
                return shown_times, shown
            rows = list(self._joined(texts[start] + b"\n"))
            shown_times += [times[start]] * len(rows)
            shown += rows
            start += 1

    def _joined(self, line: bytes) -> Iterator[bytes]:
        """Yields the rows that a line completes."""
        batch = self._splitter.feed(line) if line else self._splitter.finish()
        return (b"[%s] %s" % (source.encode(), text) for source, text in self._joiner.join(batch.lines))


def _timed(lines: list[bytes]) -> Block:
    """Returns two lists: the times of the lines, in UTC, and the lines without their times."""
    if {line[_ZONE : _ZONE + 2] for line in lines} == {b"Z "}:
        return [line[:_ZONE] for line in lines], [line[_ZONE + 2 :] for line in lines]
    times, texts = [], []
    seconds: dict[bytes, bytes] = {}
    for line in lines:
        stamp, _, text = line.partition(b" ")
        second = stamp[:_SECOND] + stamp[_ZONE:]
        if second not in seconds:
            seconds[second] = f"{second_of(stamp):%Y-%m-%dT%H:%M:%S}".encode()
        times.append(seconds[second] + stamp[_SECOND:_ZONE])
        texts.append(text)
    return times, texts
