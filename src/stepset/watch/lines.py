"""Parses the agent's line protocol. Converts bytes into events, progress, and the lines of each source.

An agent prints complete lines, which start with their source (docs/design/agent.md):

    [rank 3] text          a line of rank 3
    [rank 3+] part         a part of a line of rank 3; more parts of this line follow
    [rank 3~] state        what an incomplete line of rank 3, such as a progress bar, currently shows
    [stepset] {json}       an event

The parser processes whole chunks. Processing single lines is too slow if sixteen ranks print at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepset.run_status import LogLine
from stepset.watch.bounded_json import parse_json
from stepset.watch.reported import EVENT_LIMIT, Report, may_report, parse_report, resembles_report

PART_LIMIT = 2 * 1024 * 1024
"""The number of bytes after which the parser ends a line that has no line end. Agents split lines at 1 MiB."""
LINE_LIMIT = 8 * 1024 * 1024
"""The maximum size of a joined line, in bytes. A longer line is shown as several lines."""

_RANK_MARK = re.compile(rb"^(\[rank (\d+)\] )\[rank\2\]: ?", re.MULTILINE)
"""The mark `[rank3]: ` that torch.distributed puts before the lines of a traceback, after the source of the line."""
_HEADS, _HEAD_SIZE = 10_000, 100
"""The maximum number of parsed heads that are kept, and the maximum number of bytes of a head. A run has one head for
each rank and each node."""
_MAX_OPEN, _MAX_OPEN_BYTES = 2048, 8 * LINE_LIMIT
"""The maximum number of incomplete lines of one pod, and the maximum of their total size in bytes."""
_PIECE = 64
"""The estimated memory overhead of one part, in bytes."""

_HEAD = re.compile(rb"\[((?:rank|node) \d+|[a-z][-a-z0-9]*)([+~]?)\Z")
_STATE_SIZE = 1000
"""The number of bytes of an incomplete line's state that are kept."""
_CURSOR_UP = b"\x1b[A"
_EVENT_HEAD = b"[stepset"


@dataclass(frozen=True, slots=True)
class Head:
    """The prefix of a line."""

    source: str  # as `LogLine.source`
    continues: bool  # whether the line is only a part, and more parts follow


class OpenLine(NamedTuple):
    """What an incomplete line, such as a progress bar, currently shows.

    A later state of the line replaces this state, and so does the complete line. `source` has the values of
    `LogLine.source`.
    """

    source: str
    text: str


@dataclass(slots=True)
class Batch:
    """The content of one chunk of an agent's output. Each list has the order of the output."""

    lines: list[tuple[Head, bytes]] = field(default_factory=list)  # the lines, without progress lines
    shown: bytes = b""  # the content of `lines` as one text, with heads and line ends
    raw: dict[str, list[bytes]] = field(default_factory=dict)  # source -> its output with progress, without heads
    progress: list[Report] = field(default_factory=list)  # the reports of the training code
    unread_report: bool = False  # whether a line resembles a report of the training code, but is none
    events: list[dict[str, Any]] = field(default_factory=list)  # the reports of the agent
    parts: bool = False  # whether some lines are only parts
    # The events and the states of incomplete lines, each with the number of `lines` that precede it.
    between: list[tuple[int, dict[str, Any] | OpenLine]] = field(default_factory=list)
    at: float | None = None  # the time of the last line in seconds since the epoch, if known

    def printed(self) -> Iterator[str]:
        """Yields the sources that printed lines, progress reports or states of incomplete lines.

        A source may be yielded several times.
        """
        yield from self.raw
        yield from (item.source for _, item in self.between if isinstance(item, OpenLine))

    def last_lines(self, most: int) -> Mapping[str, Sequence[bytes]]:
        """Returns at least the last `most` lines of each source. A part of a long line counts as a line."""
        last: dict[str, list[bytes]] = {}
        if self.progress or len(self.raw) == 1:
            for head, text in self.lines[-most:] if len(self.raw) == 1 else self.lines:
                last.setdefault(head.source, []).append(text)
            return last
        # A line consists of two pieces: its text and its line end.
        for source, pieces in self.raw.items():
            last[source] = [piece for piece in pieces[-2 * most :] if piece != b"\n"]
        return last


class Splitter:
    """Splits the output of one agent. The output is given in chunks that can end anywhere.

    `source` is the source of lines without a head. Either the agent itself printed such a line, or Python printed the
    line because the agent crashed.
    """

    def __init__(self, source: str) -> None:
        self._own = Head(source, False)
        self._rest = b""
        self._open: dict[str, None] = {}
        # The parsed heads. The value is None for text that only resembles a head.
        self._heads: dict[bytes, Head | None] = {}

    def feed(self, data: bytes) -> Batch:
        """Processes `data`, and returns the lines that `data` completes."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > PART_LIMIT:
            # A line of this length violates the protocol. The line ends here, because the memory must be limited.
            self._rest = b""
            return self._split(data + b"\n")
        self._rest = data[end:]
        return self._split(data[:end]) if end else Batch()

    def finish(self) -> Batch:
        """Ends the output. Returns the last line if it has no line end, and the lines whose last part is missing."""
        whole = self._rest + b"\n" if self._rest else b""
        self._rest = b""
        batch = self._split(whole)
        closing = b"".join(b"[%s] \n" % source.encode() for source in self._open)
        if not closing:
            return batch
        tail = self._split(closing)
        for source, pieces in tail.raw.items():
            batch.raw.setdefault(source, []).extend(pieces)
        batch.lines += tail.lines
        batch.shown += tail.shown
        return batch

    def _split(self, whole: bytes) -> Batch:
        batch = Batch()
        if not whole:
            return batch
        lines, raw, open_ = batch.lines, batch.raw, self._open
        reports = may_report(whole)
        kept: list[bytes] = []
        # The heads of this chunk. Each head has the list that collects the output of its source.
        places: dict[bytes, tuple[Head, list[bytes]]] = {}
        rows = whole.split(b"\n")
        rows.pop()
        for row in rows:
            mark, found, text = row.partition(b"] ")
            place = places.get(mark) if found else None
            if place is None:
                if mark == _EVENT_HEAD and found:
                    self._event(text, batch, row, kept)
                    continue
                head = self._known_head(mark) if found else None
                if head is not None:
                    place = places[mark] = head, raw.setdefault(head.source, [])
                elif found and (state := _open_line(mark, text)):
                    batch.between.append((len(lines), state))
                    continue
                else:
                    text = row
                    row = b"[%s] %s" % (self._own.source.encode(), row)
                    place = self._own, raw.setdefault(self._own.source, [])
            head, pieces = place
            source = head.source
            pieces.append(text)
            if head.continues:
                open_[source] = None
                if len(open_) > _MAX_OPEN:
                    del open_[next(iter(open_))]
                batch.parts = True
            else:
                pieces.append(b"\n")
                if reports and may_report(text):
                    if text[:1] == b"{" and source not in open_ and (report := parse_report(text, source)):
                        batch.progress.append(report)
                        continue
                    batch.unread_report = batch.unread_report or resembles_report(text)
                if open_:
                    open_.pop(source, None)
            lines.append((head, text))
            kept.append(row)
        if kept:
            kept.append(b"")
            batch.shown = b"\n".join(kept)
        return batch

    def _known_head(self, mark: bytes) -> Head | None:
        """Returns the head in a mark, or None if the mark contains no head."""
        if len(mark) > _HEAD_SIZE:
            return None
        heads = self._heads
        if mark not in heads:
            if len(heads) >= _HEADS:
                heads.clear()
            heads[mark] = _head(mark)
        return heads[mark]

    def _event(self, text: bytes, batch: Batch, row: bytes, kept: list[bytes]) -> None:
        try:
            event = parse_json(text) if len(text) <= EVENT_LIMIT else None
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            batch.events.append(event)
            batch.between.append((len(batch.lines), event))
            return
        # The event is invalid, for example because the agent was killed while it printed. The line is shown instead.
        batch.lines.append((self._own, row))
        batch.raw.setdefault(self._own.source, []).extend((row, b"\n"))
        kept.append(b"[%s] %s" % (self._own.source.encode(), row))


def _head(mark: bytes) -> Head | None:
    match = _HEAD.match(mark)
    return Head(match.group(1).decode(), match.group(2) == b"+") if match and match.group(2) != b"~" else None


def _open_line(mark: bytes, text: bytes) -> OpenLine | None:
    match = _HEAD.match(mark) if mark.endswith(b"~") and len(mark) <= _HEAD_SIZE else None
    shown = text[:_STATE_SIZE].replace(_CURSOR_UP, b"")
    return OpenLine(match.group(1).decode(), shown.decode("utf-8", "replace")) if match else None


class Joiner:
    """Joins the parts of lines."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    @property
    def waiting(self) -> bool:
        """Whether some lines are incomplete."""
        return bool(self._parts)

    def join(self, lines: Iterable[tuple[Head, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yields the source and the text of each complete line."""
        parts = self._parts
        for head, text in lines:
            source = head.source
            if head.continues:
                parts.setdefault(source, []).append(text)
                size = len(text) + _PIECE
                self._sizes[source] = self._sizes.get(source, 0) + size
                self._size += size
                if self._sizes[source] > LINE_LIMIT:
                    yield self._complete(source, b"")
                while self._size > _MAX_OPEN_BYTES or len(parts) > _MAX_OPEN:
                    yield self._complete(next(iter(parts)), b"")
            elif parts and source in parts:
                yield self._complete(source, text)
            else:
                yield source, text

    def _complete(self, source: str, last: bytes) -> tuple[str, bytes]:
        self._size -= self._sizes.pop(source)
        return source, b"".join((*self._parts.pop(source), last))


def line_of(row: bytes) -> LogLine:
    """Converts a row of the form `[source] text`. Bytes that are not UTF-8 become U+FFFD.

    >>> line_of(b"[rank 0] loss [1]")
    LogLine(source='rank 0', text='loss [1]')
    """
    source, _, text = row[1:].partition(b"] ")
    return LogLine(source.decode(errors="replace"), text.decode(errors="replace"))


def log_lines(complete: Iterable[tuple[str, bytes]]) -> Iterator[LogLine]:
    """Decodes complete lines. Bytes that are not UTF-8 become U+FFFD."""
    return (LogLine(source, text.decode("utf-8", "replace")) for source, text in complete)


def without_rank_mark(source: str, text: str) -> str:
    """Returns a line of a rank without torch's mark. The mark is redundant, because the prefix contains the rank.

    Source: torch 2.15, torch/distributed/distributed_c10d.py, `_distributed_excepthook`.

    >>> without_rank_mark("rank 3", "[rank3]: ValueError: bad batch")
    'ValueError: bad batch'
    >>> without_rank_mark("node 0", "[rank3]: ValueError: bad batch")
    '[rank3]: ValueError: bad batch'
    """
    mark = f"[{source.replace(' ', '')}]:"
    return text.removeprefix(mark).removeprefix(" ") if source.startswith("rank ") and text.startswith(mark) else text


def without_rank_marks(rows: bytes) -> bytes:
    r"""Returns complete rows `[source] text` without torch's marks.

    >>> without_rank_marks(b"[rank 1] [rank1]: ValueError\n[rank 1] [rank2]: x\n")
    b'[rank 1] ValueError\n[rank 1] [rank2]: x\n'
    """
    return _RANK_MARK.sub(rb"\1", rows) if b"] [rank" in rows else rows  # `in` is much faster than the replacement
