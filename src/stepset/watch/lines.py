"""The agent's line protocol: bytes in, lines by source, events and progress out.

Everything an agent prints is whole lines that say whose they are (docs/design/agent.md):

    [rank 3] text          a line of rank 3
    [rank 3+] part         a part of a line that goes on with what follows of rank 3
    [stepset] {json}       an event

Used by whoever reads agents: the local backend from pipes, the cluster watcher from pods' logs. Works on chunks,
because a line at a time is too slow for sixteen ranks that print at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepset.watch.state import LogLine, Progress

PART_LIMIT = 2 * 1024 * 1024
"""Bytes without a line end after which a reader stops waiting for one; agents break lines at 1 MiB."""
LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of parts joined to one line; what goes on longer is shown as several."""

_HEAD = re.compile(rb"\[((?:rank|node) \d+|[a-z][-a-z0-9]*)(\+?)\Z")
_EVENT_HEAD = b"[stepset"
_PROGRESS_MARK = b'"stepset"'


class Head(NamedTuple):
    """What stands before a line.

    Args:
        source: whose line it is, as in LogLine.
        goes_on: it is a part; the line's end is still to come.
    """

    source: str
    goes_on: bool


@dataclass(slots=True)
class Batch:
    """What one chunk of an agent's output held, each in the order it was printed.

    Args:
        lines: log lines; progress lines are left out.
        shown: the same lines as bytes, with their heads and line ends.
        raw: source -> the bytes it printed, progress included, heads left out; join them.
        progress: what the training code said of itself.
        events: what the agent said.
        parts: whether some of the lines are only parts.
    """

    lines: list[tuple[Head, bytes]] = field(default_factory=list)
    shown: bytes = b""
    raw: dict[str, list[bytes]] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    parts: bool = False


class Splitter:
    """Splits the output of one agent, in chunks that may end anywhere.

    Args:
        source: whose a line without head is: what the agent itself or its interpreter printed in an emergency.
    """

    def __init__(self, source: str) -> None:
        self._own = Head(source, False)
        self._rest = b""
        self._open: dict[str, None] = {}
        # A head is looked at once; after that its bytes are enough. None: not a head, only text that looks like one.
        self._heads: dict[bytes, Head | None] = {}

    def feed(self, data: bytes) -> Batch:
        """What `data` completes."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > PART_LIMIT:
            # Nobody who keeps to the protocol does this; memory stays bounded all the same.
            self._rest = b""
            return self._split(data + b"\n")
        self._rest = data[end:]
        return self._split(data[:end]) if end else Batch()

    def finish(self) -> Batch:
        """What is left at the end of the output: a last line without line end, and lines whose end never came."""
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
                head = heads[mark] if found else None
            except KeyError:
                head = heads[mark] = _head(mark)
            if head is None:
                head, text = self._own, row
                row = b"[%s] %s" % (head.source.encode(), row)
            source = head.source
            pieces = raw.get(source)
            if pieces is None:
                pieces = raw[source] = []
            pieces.append(text)
            if head.goes_on:
                open_[source] = None
                batch.parts = True
            else:
                pieces.append(b"\n")
                if may_report and text[:1] == b"{" and source not in open_ and (said := parse_progress(text)):
                    batch.progress.append(said)
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
            event = json.loads(text)
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            batch.events.append(event)
            return
        # Cut off by a kill, say: better seen than lost.
        batch.lines.append((self._own, row))
        batch.raw.setdefault(self._own.source, []).extend((row, b"\n"))
        kept.append(b"[%s] %s" % (self._own.source.encode(), row))


def _head(mark: bytes) -> Head | None:
    match = _HEAD.match(mark)
    return Head(match.group(1).decode(), match.group(2) == b"+") if match else None


def parse_progress(text: bytes) -> Progress | None:
    """What a `{"stepset": {...}}` line says, or None where it is an ordinary line.

    Args:
        text: a line, without its end.

    >>> parse_progress(b'{"stepset": {"step": 3, "progress": 0.5, "metrics": {"loss": 0.25}}}')
    Progress(step=3, progress=0.5, metrics={'loss': 0.25})
    """
    try:
        data = json.loads(text)
    except ValueError:  # no JSON, or no UTF-8
        return None
    if not isinstance(data, dict) or list(data) != ["stepset"] or not isinstance(data["stepset"], dict):
        return None
    said = data["stepset"]
    step, part, metrics = said.get("step"), _number(said.get("progress")), said.get("metrics")
    numbers = (
        {str(k): n for k, v in metrics.items() if (n := _number(v)) is not None} if isinstance(metrics, dict) else {}
    )
    return Progress(
        step=step if isinstance(step, int) and not isinstance(step, bool) else None,
        progress=None if part is None else min(max(part, 0.0), 1.0),
        metrics=numbers,
    )


def _number(value: Any) -> float | None:
    """A finite number, as JSON can hold it; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def merge_progress(old: Progress | None, new: Progress) -> Progress:
    """What is known after a line: what it does not mention stays as it was said before."""
    if old is None:
        return new
    return Progress(
        step=old.step if new.step is None else new.step,
        progress=old.progress if new.progress is None else new.progress,
        metrics={**old.metrics, **new.metrics},
    )


class Joiner:
    """Puts lines together that came in parts."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether some line's end is still to come."""
        return bool(self._parts)

    def join(self, lines: Iterable[tuple[Head, bytes]]) -> Iterator[tuple[str, bytes]]:
        """(source, text) of the lines that are complete."""
        parts = self._parts
        for (source, goes_on), text in lines:
            if goes_on:
                parts.setdefault(source, []).append(text)
                self._sizes[source] = self._sizes.get(source, 0) + len(text)
                if self._sizes[source] > LINE_LIMIT:
                    yield self._complete(source, b"")
            elif parts and source in parts:
                yield self._complete(source, text)
            else:
                yield source, text

    def _complete(self, source: str, last: bytes) -> tuple[str, bytes]:
        del self._sizes[source]
        return source, b"".join((*self._parts.pop(source), last))


def log_lines(complete: Iterable[tuple[str, bytes]]) -> Iterator[LogLine]:
    """Complete lines as text; bytes that are no UTF-8 show as U+FFFD."""
    return (LogLine(source, text.decode("utf-8", "replace")) for source, text in complete)
