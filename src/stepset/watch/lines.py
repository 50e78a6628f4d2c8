"""Parses the agent's line protocol: from bytes to lines by source, events and progress.

An agent prints whole lines that name their source (docs/design/agent.md):

    [rank 3] text          a line of rank 3
    [rank 3+] part         a part of a line of rank 3 that continues
    [rank 3~] state        what an incomplete line of rank 3, such as a progress bar, currently shows
    [stepset] {json}       an event

The parser processes chunks: one line at a time is too slow for sixteen ranks that print at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepset.run_status import LogLine, Progress
from stepset.watch.bounded_json import finite, parse_json

PART_LIMIT = 2 * 1024 * 1024
"""Bytes after which the parser ends a line that has no line end; agents split lines at 1 MiB."""
LINE_LIMIT = 8 * 1024 * 1024
"""The maximum size of a joined line, in bytes; a longer line is shown as several lines."""

EVENT_LIMIT = 256 * 1024
"""The maximum size of an agent's event and of a progress report, in bytes; longer ones are ordinary lines."""
MAX_METRICS = 100
"""The maximum number of a run's metrics; the first ones are kept."""
TOO_MANY_METRICS = f"the run reports more than {MAX_METRICS} metrics; the others are not kept"
"""The note on a run whose further metrics are left out."""
_METRIC_NAME = 200
_HEADS, _HEAD_SIZE = 10_000, 100
"""The maximum number of parsed heads that are kept, and of bytes of a head; a run has one for each rank and node."""
_MAX_OPEN, _MAX_OPEN_BYTES = 2048, 8 * LINE_LIMIT
"""The maximum number, and total size in bytes, of one pod's lines that wait for their ends."""
_PIECE = 64
"""The estimated memory overhead of one part, in bytes."""

_HEAD = re.compile(rb"\[((?:rank|node) \d+|[a-z][-a-z0-9]*)([+~]?)\Z")
_STATE_SIZE = 1000
"""Bytes of an incomplete line's state that are kept."""
_CURSOR_UP = b"\x1b[A"
_EVENT_HEAD = b"[stepset"
_PROGRESS_MARK = b'"stepset"'


class Head(NamedTuple):
    """The prefix of a line."""

    source: str  # as in LogLine
    continues: bool  # the line is a part, and its end follows later


class OpenLine(NamedTuple):
    """What an incomplete line, such as a progress bar, currently shows; a later state or the complete line replaces it.

    `source` is as in LogLine.
    """

    source: str
    text: str


@dataclass(slots=True)
class Batch:
    """The content of one chunk of an agent's output, in the printed order."""

    lines: list[tuple[Head, bytes]] = field(default_factory=list)  # without progress lines
    shown: bytes = b""  # the same lines as one text, with heads and line ends
    raw: dict[str, list[bytes]] = field(default_factory=dict)  # source -> its output with progress, without heads
    progress: list[Progress] = field(default_factory=list)  # reports of the training code
    events: list[dict[str, Any]] = field(default_factory=list)  # reports of the agent
    parts: bool = False  # whether some lines are only parts
    # The events again and the states of incomplete lines, each with the number of `lines` before it.
    between: list[tuple[int, dict[str, Any] | OpenLine]] = field(default_factory=list)


class Splitter:
    """Splits the output of one agent, given as chunks that may end anywhere.

    Lines without a head are assigned to `source`: the agent itself printed them or, if it crashed, its interpreter.
    """

    def __init__(self, source: str) -> None:
        self._own = Head(source, False)
        self._rest = b""
        self._open: dict[str, None] = {}
        # Parsed heads; None for text that only resembles a head.
        self._heads: dict[bytes, Head | None] = {}

    def feed(self, data: bytes) -> Batch:
        """Processes `data`; returns the lines that it completes."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > PART_LIMIT:
            # This violates the protocol; end the line to bound the memory.
            self._rest = b""
            return self._split(data + b"\n")
        self._rest = data[end:]
        return self._split(data[:end]) if end else Batch()

    def finish(self) -> Batch:
        """Ends the output; returns a last line without a line end, and lines whose last part is missing."""
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
        lines, raw, heads, open_ = batch.lines, batch.raw, self._heads, self._open
        may_report = _PROGRESS_MARK in whole
        kept: list[bytes] = []
        rows = whole.split(b"\n")
        rows.pop()
        for row in rows:
            mark, found, text = row.partition(b"] ")
            if mark == _EVENT_HEAD and found:
                self._event(text, batch, row, kept)
                continue
            try:
                head = heads[mark] if found and len(mark) <= _HEAD_SIZE else None
            except KeyError:
                if len(heads) >= _HEADS:
                    heads.clear()
                head = heads[mark] = _head(mark)
            if head is None:
                if found and (state := _open_line(mark, text)):
                    batch.between.append((len(lines), state))
                    continue
                head, text = self._own, row
                row = b"[%s] %s" % (head.source.encode(), row)
            source = head.source
            pieces = raw.get(source)
            if pieces is None:
                pieces = raw[source] = []
            pieces.append(text)
            if head.continues:
                open_[source] = None
                if len(open_) > _MAX_OPEN:
                    del open_[next(iter(open_))]
                batch.parts = True
            else:
                pieces.append(b"\n")
                if may_report and text[:1] == b"{" and source not in open_ and (report := parse_progress(text)):
                    batch.progress.append(report)
                    continue
                if open_:
                    open_.pop(source, None)
            lines.append((head, text))
            kept.append(row)
        if kept:
            kept.append(b"")
            batch.shown = b"\n".join(kept)
        return batch

    def _event(self, text: bytes, batch: Batch, row: bytes, kept: list[bytes]) -> None:
        try:
            event = parse_json(text) if len(text) <= EVENT_LIMIT else None
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            batch.events.append(event)
            batch.between.append((len(batch.lines), event))
            return
        # Invalid, for example because the agent was killed while it printed: show the line.
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


def parse_progress(text: bytes) -> Progress | None:
    """The progress in a line `{"stepset": {...}}`, given without its line end; None for any other line.

    >>> parse_progress(b'{"stepset": {"step": 3, "progress": 0.5, "metrics": {"loss": 0.25}}}')
    Progress(step=3, progress=0.5, metrics={'loss': 0.25})
    """
    try:
        # Only lines that contain the mark and are UTF-8: from these the agent has removed values of Secrets
        # (Redactor.reports).
        data = parse_json(text.decode()) if len(text) <= EVENT_LIMIT and _PROGRESS_MARK in text else None
    except ValueError:  # not JSON, or not UTF-8
        return None
    if not isinstance(data, dict) or list(data) != ["stepset"] or not isinstance(data["stepset"], dict):
        return None
    report = data["stepset"]
    step, part, metrics = report.get("step"), finite(report.get("progress")), report.get("metrics")
    named = metrics.items() if isinstance(metrics, dict) else ()
    numbers = {k: n for k, v in named if len(k) <= _METRIC_NAME and (n := finite(v)) is not None}
    return Progress(
        step=step if isinstance(step, int) and finite(step) is not None else None,
        progress=None if part is None else min(max(part, 0.0), 1.0),
        metrics=numbers,
    )


def merge_progress(old: Progress | None, new: Progress) -> Progress:
    """Updates the progress with a new report; fields that the report omits keep their values."""
    if old is None:
        old = Progress()
    return Progress(
        step=old.step if new.step is None else new.step,
        progress=old.progress if new.progress is None else new.progress,
        metrics=_merged(old.metrics, new.metrics),
    )


def _merged(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """The newest value of each metric; names beyond the limit are left out."""
    if len(old) + len(new) <= MAX_METRICS:
        return {**old, **new}
    names = list(dict.fromkeys((*old, *new)))[:MAX_METRICS]
    return {name: new.get(name, old.get(name, 0.0)) for name in names}


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
        for (source, continues), text in lines:
            if continues:
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


def log_lines(complete: Iterable[tuple[str, bytes]]) -> Iterator[LogLine]:
    """Decodes complete lines; bytes that are not UTF-8 become U+FFFD."""
    return (LogLine(source, text.decode("utf-8", "replace")) for source, text in complete)
