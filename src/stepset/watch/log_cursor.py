"""Joins the responses for a pod's log, which may be cut at any byte, so that each line is delivered once. Pure.

The input is the response to `GET pods/NAME/log?timestamps=true`, in chunks that end anywhere; the output is what the
container printed. After a cut, the next request starts at `since`, and lines that were delivered before are dropped:
their timestamps identify them.

Properties of responses (k8s.io/cri-client v0.36.3 pkg/logs/logs.go; k8s.io/kubernetes v1.36.3 and v1.35.4
pkg/kubelet/server/server.go and pkg/registry/core/pod/strategy.go; k8s.io/apiserver v0.36.3 StreamObject):

- Each line begins with a timestamp of nine decimals, in UTC or with the node's offset. A long line is stored in parts
  (16 KiB in containerd), and only the first one's timestamp is sent.
- sinceTime is cut to seconds and compared part by part, so a response may begin within a line that began earlier.
- The kubelet writes errors after the first byte into the log: at the end, without a timestamp and without a line end.
  A response that the kubelet broke off ends like a complete one, because the API server does not report it; so only
  a response that was requested after the container's end is certain to contain the end of the log.
- Rotated files are not read: lines that are rotated away before they are read are lost without notice. If a
  rotation splits a line (10 MiB or more), the second part looks like a new line and may be delivered twice.
- containerd drops a carriage return before a line end; all other bytes are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

LONG = 128 * 1024
"""Bytes without a line end after which a line is delivered in pieces."""

_HELD = 4096
"""Last bytes of such a line that are not delivered yet: they may be the kubelet's error."""
_MARGIN = timedelta(seconds=1)
"""Overlap of two requests: lines of stdout and stderr may be slightly out of order."""

_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) ")
_SECOND = len(b"2006-01-02T15:04:05")
_ZONE = len(b"2006-01-02T15:04:05.000000000")
"""Where a timestamp's zone begins."""


class LogCursor:
    """Joins the responses for one container's log to one log; `stamped` keeps each line's timestamp.

    Timestamps may be equal, and slightly out of order. If a clock is set back by more than a second, lines printed
    between two responses are missed.
    """

    def __init__(self, *, stamped: bool = False) -> None:
        self._stamped = stamped
        # Delivered so far: the last line's timestamp, how many lines have it, and the latest timestamp of all.
        self._last = b""
        self._equal = 0
        self._latest = b""
        # How many bytes of the last line were delivered; None if the whole line was.
        self._open: int | None = None
        # Of the current response: the bytes not processed yet; whether they are within a very long line, whether that
        # line is wanted, and how many more of its bytes to drop.
        self._rest = b""
        self._in_long_line = False
        self._wanted = False
        self._drop = 0
        # _seeking: whether the reader still looks for the last delivered line. _seen: lines so far with that line's
        # timestamp.
        self._seeking = False
        self._seen = 0
        self._jumped = False

    def to_dict(self) -> dict[str, Any]:
        """The position after the delivered lines, as plain data from which another process can continue."""
        return {
            "last": self._last.decode("ascii"),
            "equal": self._equal,
            "latest": self._latest.decode("ascii"),
            "open": self._open,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, stamped: bool = False) -> LogCursor:
        """Continues from the position that `to_dict` returned."""
        cursor = cls(stamped=stamped)
        cursor._last, cursor._latest = data["last"].encode("ascii"), data["latest"].encode("ascii")
        cursor._equal, cursor._open = data["equal"], data["open"]
        cursor.cut()
        return cursor

    @property
    def since(self) -> str | None:
        """`sinceTime` for the next request; None requests the whole log."""
        return (second_of(self._last) - _MARGIN).strftime("%Y-%m-%dT%H:%M:%SZ") if self._last else None

    @property
    def error(self) -> str:
        """The kubelet's error, which replaces the rest of a finished response; empty if there is none."""
        foreign = not self._in_long_line and not _STAMP.match(self._rest)
        return self._rest.decode("utf-8", "replace").strip() if foreign else ""

    @property
    def jumped(self) -> bool:
        """Whether the current response starts after the last delivered line (rotation, or a restarted container)."""
        return self._jumped

    def feed(self, data: bytes) -> bytes:
        """Processes the next bytes of a response; returns the lines that they add. Very long lines come in pieces."""
        if self._rest:
            data = self._rest + data
        ahead = b""
        if self._in_long_line:
            end = data.find(b"\n") + 1
            if not end:
                kept = max(0, len(data) - _HELD)
                self._rest = data[kept:]
                return self._piece(data[:kept])
            ahead = self._piece(data[:end])
            self._in_long_line = False
            data = data[end:]
        end = data.rfind(b"\n") + 1
        if end:
            ahead += self._lines(data[:end])
        self._rest = data[end:]
        if len(self._rest) > LONG:
            ahead += self._begin(self._rest[:-_HELD])
            self._rest = self._rest[-_HELD:]
        return ahead

    def cut(self) -> None:
        """Ends the response, complete or not; the next bytes belong to another one."""
        self._rest, self._in_long_line = b"", False
        self._seeking, self._seen, self._jumped = bool(self._last), 0, False

    def finish(self) -> bytes:
        """Ends the log and its response; returns the rest, with a line end.

        The log of the container's next start may follow.
        """
        left = b""
        if self._in_long_line:
            left, self._rest = self._piece(self._rest + b"\n"), b""
        elif _STAMP.match(self._rest):
            left, self._rest = self._lines(self._rest + b"\n"), b""
        self.cut()
        return left + self._close()

    def _lines(self, whole: bytes) -> bytes:
        """Processes whole lines; returns what they add to the log."""
        rows = whole.split(b"\n")
        rows.pop()
        ahead = b""
        if self._seeking:
            ahead, rows = self._seek(rows)
            if not rows:
                return ahead
        first, last, low, high = rows[0], rows[-1], min(rows), max(rows)
        match = _STAMP.match(last)
        width = match.end() if match else 0
        zone = last[_ZONE:width]
        if not width or any(row[_ZONE:width] != zone or not _STAMP.match(row) for row in (first, low, high)):
            return ahead + b"".join(map(self._line, rows))
        # All timestamps are of one zone, so they are equally wide and sort as text.
        stamp, equal = last[: width - 1], 0
        for row in reversed(rows):
            if not row.startswith(stamp):
                break
            equal += 1
        self._delivered(stamp, equal, high[: width - 1])
        texts = rows if self._stamped else [row[width:] for row in rows]
        texts.append(b"")
        return ahead + b"\n".join(texts)

    def _line(self, row: bytes) -> bytes:
        """Processes one line, if timestamps differ in width or are missing; returns what it adds to the log."""
        match = _STAMP.match(row)
        if not match:
            return b""  # the kubelet's error may have several lines
        stamp = row[: match.end() - 1]
        self._delivered(stamp, 1, stamp)
        return (row if self._stamped else row[match.end() :]) + b"\n"

    def _begin(self, part: bytes) -> bytes:
        """Processes the beginning of a very long line; returns what it adds to the log."""
        found = self._place_of(part) if self._seeking else _Place.NEW
        match = _STAMP.match(part)
        self._in_long_line, self._drop = True, 0
        self._wanted = match is not None and found is not _Place.OLD
        if match is None or not self._wanted:
            return b""
        text = part[match.end() :]
        if found is _Place.OPEN:
            self._drop = self._open or 0
            return self._piece(text)
        ahead = self._close() + (match.group() if self._stamped else b"")
        stamp = match.group()[:-1]
        self._delivered(stamp, 1, stamp)
        return ahead + self._piece(text)

    def _piece(self, data: bytes) -> bytes:
        """Processes a further piece of a very long line; returns what it adds to the log."""
        if not self._wanted:
            return b""
        if self._drop:
            dropped = min(self._drop, len(data))
            self._drop -= dropped
            data = data[dropped:]
        self._open = None if data.endswith(b"\n") else (self._open or 0) + len(data)
        return data

    def _seek(self, rows: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Returns the rest of a partly delivered line, and the lines that are new."""
        for number, row in enumerate(rows):
            found = self._place_of(row)
            if found is _Place.NEW:
                return self._close(), rows[number:]
            if found is _Place.OPEN:
                text = row[len(self._last) + 1 + (self._open or 0) :]
                self._open = None
                return text + b"\n", rows[number + 1 :]
            if not self._seeking:
                return b"", rows[number + 1 :]
        return b"", []

    def _place_of(self, row: bytes) -> _Place:
        """Compares a line of a new response with the delivered ones; the last old line ends the search."""
        match = _STAMP.match(row)
        if match is None:
            return _Place.OLD  # the end of a line that began before `since`
        stamp = match.group()[:-1]
        if stamp == self._last:
            self._seen += 1
            if self._seen < self._equal:
                return _Place.OLD
            self._seeking = False
            return _Place.OLD if self._open is None else _Place.OPEN
        if _later(stamp, self._latest):
            self._seeking, self._jumped = False, True
            return _Place.NEW
        return _Place.OLD

    def _delivered(self, stamp: bytes, equal: int, latest: bytes) -> None:
        """Records delivered lines, of which the last `equal` have the timestamp `stamp`."""
        self._equal = self._equal + equal if stamp == self._last else equal
        self._last = stamp
        if not self._latest or _later(latest, self._latest):
            self._latest = latest

    def _close(self) -> bytes:
        """Ends a line whose line end will not arrive."""
        ended = b"" if self._open is None else b"\n"
        self._open = None
        return ended


class _Place(Enum):
    """The position of a line of a response relative to the delivered lines; OPEN: delivered in part."""

    OLD = 1
    OPEN = 2
    NEW = 3


def second_of(stamp: bytes) -> datetime:
    """The second of a kubelet's timestamp, in UTC."""
    return datetime.fromisoformat((stamp[:_SECOND] + stamp[_ZONE:]).decode()).astimezone(UTC)


def _later(a: bytes, b: bytes) -> bool:
    """Whether the timestamp `a` is after `b`."""
    if a[_ZONE:] == b[_ZONE:]:
        return a > b
    return (second_of(a), a[_SECOND:_ZONE]) > (second_of(b), b[_SECOND:_ZONE])
