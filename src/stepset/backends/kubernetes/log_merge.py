"""The logs of several pods as one, in the order of their times. Pure, but for what its input does to be read.

Called by log_reading. Works on blocks of lines: sixteen ranks that print at once
are merged about as fast as they can be read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from stepset.backends.kubernetes.log_pods import LogPod
from stepset.watch.lines import PART_LIMIT, Joiner, Splitter, parse_progress
from stepset.watch.resume import second_of

_REGULAR = re.compile(rb"\[(?:(?:rank|node) \d+|(?!stepset\])[a-z][-a-z0-9]*)\] (?!\{)")
"""A line of an agent that can be shown as it is; events, parts and what may be progress need a second look."""
_SECOND = len(b"2006-01-02T15:04:05")
_ZONE = len(b"2006-01-02T15:04:05.000000000")
_NEVER = b"~"


class LogRows:
    """One pod's log as rows `[source] text`, block by block.

    Args:
        pod: whose.
        stamped: its log in chunks, as `Resume(stamped=True)` gives it.
        sources: only theirs; None: all.

    Attributes:
        keys: when each of the present rows was printed, as text that sorts; never going back.
        rows: the present rows, without line ends.
    """

    def __init__(self, pod: LogPod, stamped: Iterable[bytes], sources: frozenset[str] | None) -> None:
        self.keys: list[bytes] = []
        self.rows: list[bytes] = []
        self._chunks = iter(stamped)
        self._heads = None if sources is None else tuple(b"[%s] " % source.encode() for source in sorted(sources))
        self._own = None if pod.agent else b"[%s] " % pod.source.encode()
        self._splitter, self._joiner = Splitter(pod.source), Joiner()
        self._rest = b""
        self._latest = b""
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether there are no rows any more."""
        return self._ended and not self.rows

    @property
    def last(self) -> bytes | None:
        """What comes later has at least this key; None: nothing comes."""
        return None if self._ended else self._latest

    def fill(self) -> None:
        """Reads on until there are rows, or the log is at its end."""
        while not self.rows and not self._ended:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._end()
            else:
                self._take(chunk)

    def take(self, until: bytes) -> tuple[list[bytes], list[bytes]]:
        """Keys and rows up to a time, which are there no longer then."""
        count = bisect_right(self.keys, until)
        taken = self.keys[:count], self.rows[:count]
        del self.keys[:count], self.rows[:count]
        return taken

    def _take(self, chunk: bytes) -> None:
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        self._add(data[:end])
        if len(self._rest) > PART_LIMIT:
            # Shown as several lines, of one time.
            self._add(self._rest + b"\n")
            self._rest = self._rest[: self._rest.index(b" ") + 1]

    def _add(self, whole: bytes) -> None:
        """Takes whole lines."""
        if not whole:
            return
        lines = whole.split(b"\n")
        lines.pop()
        self._append(*self._shown(*_timed(lines)))

    def _append(self, keys: list[bytes], rows: list[bytes]) -> None:
        if self._heads is not None:
            kept = [number for number, row in enumerate(rows) if row.startswith(self._heads)]
            keys, rows = [keys[number] for number in kept], [rows[number] for number in kept]
        if not rows:
            return
        if keys[0] < self._latest or keys != sorted(keys):
            # stdout's and stderr's lines are a little out of order; what a pod printed stays in its own.
            keys = list(accumulate([self._latest, *keys], max))[1:]
        self._latest = keys[-1]
        self.keys += keys
        self.rows += rows

    def _shown(self, keys: list[bytes], texts: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Rows as they are shown: with their source, parts joined, without events and progress."""
        if (own := self._own) is not None:
            rows = [own + text for text in texts]
            reports = [n for n, text in enumerate(texts) if text[:1] == b"{" and parse_progress(text)]
            for number in reversed(reports):
                del keys[number], rows[number]
            return keys, rows
        if not self._joiner.waiting and all(map(_REGULAR.match, texts)):
            return keys, texts
        shown_keys, shown = [], []
        for key, text in zip(keys, texts, strict=True):
            if not self._joiner.waiting and _REGULAR.match(text):
                shown_keys.append(key)
                shown.append(text)
                continue
            for row in self._joined(text + b"\n"):
                shown_keys.append(key)
                shown.append(row)
        return shown_keys, shown

    def _joined(self, line: bytes) -> Iterator[bytes]:
        """What a line completes."""
        batch = self._splitter.feed(line) if line else self._splitter.finish()
        return (b"[%s] %s" % (source.encode(), text) for source, text in self._joiner.join(batch.lines))

    def _end(self) -> None:
        self._ended = True
        if self._own is None:
            rows = list(self._joined(b""))
            self._append([self._latest] * len(rows), rows)


def merged(pods: Iterable[LogRows]) -> Iterator[list[bytes]]:
    """The rows of all, in blocks, in the order of their times; those of one time in the order of the pods."""
    left = list(pods)
    while left:
        for pod in left:
            pod.fill()
        left = [pod for pod in left if not pod.ended]
        # Nobody has anything yet to show that is older than this.
        until = min((pod.last for pod in left if pod.last is not None), default=_NEVER)
        taken = [each for each in (pod.take(until) for pod in left) if each[1]]
        if len(taken) == 1:
            yield taken[0][1]
        elif taken:
            keys = [key for some, _ in taken for key in some]
            rows = [row for _, some in taken for row in some]
            yield [rows[number] for number in sorted(range(len(keys)), key=keys.__getitem__)]


def _timed(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The lines' times, in UTC, and their texts."""
    if {line[_ZONE : _ZONE + 2] for line in lines} == {b"Z "}:
        return [line[:_ZONE] for line in lines], [line[_ZONE + 2 :] for line in lines]
    keys, texts = [], []
    seconds: dict[bytes, bytes] = {}
    for line in lines:
        stamp, _, text = line.partition(b" ")
        second = stamp[:_SECOND] + stamp[_ZONE:]
        if second not in seconds:
            seconds[second] = f"{second_of(stamp):%Y-%m-%dT%H:%M:%S}".encode()
        keys.append(seconds[second] + stamp[_SECOND:_ZONE])
        texts.append(text)
    return keys, texts
