"""Joins the responses for the log of a pod so that each line is delivered once. A response can be cut at any byte.

The module uses no I/O. The input consists of the responses to `GET pods/NAME/log?timestamps=true`, in chunks that can
end anywhere. The output is the text that the container printed. After a response was cut, the next request starts at
the time `since`. Lines that were delivered before are recognized by their timestamps and dropped.

Properties of responses (k8s.io/cri-client v0.36.3 pkg/logs/logs.go; k8s.io/kubernetes v1.36.3 and v1.35.4
pkg/kubelet/server/server.go and pkg/registry/core/pod/strategy.go; k8s.io/apiserver v0.36.3 StreamObject):

- Each line begins with a timestamp of nine decimals, in UTC or with the node's offset. Container runtimes store a long
  line in parts (16 KiB in containerd). Only the timestamp of the first part is sent.
- The kubelet truncates sinceTime to seconds, and compares it with the timestamp of each part. Therefore a response may
  begin within a line whose first part is older.
- If an error occurs after the first byte was sent, the kubelet writes the error to the end of the response, without a
  timestamp and without a line end. The API server does not report that a response is incomplete. Therefore a response
  is certain to contain the end of the log only if it was requested after the container has exited.
- The kubelet does not read rotated files. If lines are rotated before they are read, they are lost without notice. If a
  rotation splits a line of 10 MiB or more, the second part looks like a new line. This part can be delivered twice.
- containerd drops a carriage return before a line end. All other bytes are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

LONG = 128 * 1024
"""The number of bytes without a line end after which a line is delivered in pieces."""

_HELD = 4096
"""The number of last bytes of a long line that are not delivered yet, because they may be the kubelet's error."""
_MARGIN = timedelta(seconds=1)
"""The time by which two requests overlap. The lines of stdout and stderr can be slightly out of order."""

# A response can begin within a line, and the output of the training can look like a timestamp. The pattern matches only
# times that `second_of` can convert.
_STAMP = re.compile(
    rb"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{9}"
    rb"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d) "
)
_SECOND = len(b"2006-01-02T15:04:05")
_ZONE = len(b"2006-01-02T15:04:05.000000000")
"""The index at which the time zone of a timestamp begins."""


class LogCursor:
    """Joins the responses for the log of one container.

    Timestamps can be equal, and slightly out of order. If the clock of the node is set back by more than a second,
    lines that were printed between two responses are missed.

    Args:
        stamped: whether the delivered lines contain their timestamps.
    """

    def __init__(self, *, stamped: bool = False) -> None:
        self._stamped = stamped
        # The timestamp of the last delivered line, the number of delivered lines with this timestamp, and the latest
        # timestamp of all delivered lines.
        self._last = b""
        self._equal = 0
        self._latest = b""
        # The number of bytes of the last line that were delivered, or None if the whole line was delivered.
        self._open: int | None = None
        # The state of the current response:
        self._rest = b""  # the bytes that were not processed yet
        self._in_long_line = False  # whether `_rest` is within a very long line
        self._wanted = False  # whether the very long line is to be delivered
        self._drop = 0  # the number of bytes of the very long line that are still to be dropped
        self._seeking = False  # whether the last delivered line was not found yet in this response
        self._seen = 0  # the number of lines of this response that have the timestamp of the last delivered line
        self._jumped = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the position after the delivered lines as plain data. Another process can continue from it."""
        return {
            "last": self._last.decode("ascii"),
            "equal": self._equal,
            "latest": self._latest.decode("ascii"),
            "open": self._open,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, stamped: bool = False) -> LogCursor:
        """Returns a cursor that continues from a position that `to_dict` returned."""
        cursor = cls(stamped=stamped)
        cursor._last, cursor._latest = data["last"].encode("ascii"), data["latest"].encode("ascii")
        cursor._equal, cursor._open = data["equal"], data["open"]
        cursor.cut()
        return cursor

    @classmethod
    def at(cls, time: float) -> LogCursor:
        """Returns a cursor that delivers only lines that were printed after `time`, in seconds since the epoch.

        >>> cursor = LogCursor.at(60.0)
        >>> cursor.feed(b"1970-01-01T00:00:59.000000000Z old\\n1970-01-01T00:01:01.000000000Z new\\n")
        b'new\\n'
        """
        stamp = f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
        return cls.from_dict({"last": stamp, "latest": stamp, "equal": 0, "open": None})

    @property
    def since(self) -> str | None:
        """The value of `sinceTime` for the next request. None means that the next request must read the whole log."""
        return (second_of(self._last) - _MARGIN).strftime("%Y-%m-%dT%H:%M:%SZ") if self._last else None

    @property
    def printed_at(self) -> float | None:
        """The time at which the last delivered line was printed, in seconds since the epoch.

        The time is None if no line was delivered yet.

        >>> cursor = LogCursor()
        >>> cursor.feed(b"1970-01-01T00:01:00.250000000Z step 1\\n"), cursor.printed_at
        (b'step 1\\n', 60.25)
        """
        if not self._last:
            return None
        return second_of(self._last).timestamp() + float(b"0" + self._last[_SECOND:_ZONE])

    @property
    def error(self) -> str:
        """The error that the kubelet wrote to the end of a finished response, or "" if there is none."""
        foreign = not self._in_long_line and not _STAMP.match(self._rest)
        return self._rest.decode("utf-8", "replace").strip() if foreign else ""

    @property
    def jumped(self) -> bool:
        """Whether the current response starts after the last delivered line.

        The cause is a rotation of the log, or a restart of the container.
        """
        return self._jumped

    def feed(self, data: bytes) -> bytes:
        """Processes the next bytes of a response, and returns the lines to deliver.

        A very long line is returned in pieces by several calls.
        """
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
        """Ends the response, which may be incomplete. The next bytes belong to another response."""
        self._rest, self._in_long_line = b"", False
        self._seeking, self._seen, self._jumped = bool(self._last), 0, False

    def finish(self) -> bytes:
        """Ends the log and its response. Returns the rest of the log with a line end.

        After this call, the log of the container's next start can be given to `feed`.
        """
        left = b""
        if self._in_long_line:
            left, self._rest = self._piece(self._rest + b"\n"), b""
        elif _STAMP.match(self._rest):
            left, self._rest = self._lines(self._rest + b"\n"), b""
        self.cut()
        return left + self._close()

    def _lines(self, whole: bytes) -> bytes:
        """Processes complete lines, and returns the text to deliver."""
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
        # All timestamps are of one time zone. Therefore they have the same width, and can be compared as text.
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
        """Processes one line, which may have no timestamp. Returns the text to deliver."""
        match = _STAMP.match(row)
        if not match:
            return b""  # the kubelet's error, which can have several lines
        stamp = row[: match.end() - 1]
        self._delivered(stamp, 1, stamp)
        return (row if self._stamped else row[match.end() :]) + b"\n"

    def _begin(self, part: bytes) -> bytes:
        """Processes the beginning of a very long line, and returns the text to deliver."""
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
        """Processes another piece of a very long line, and returns the text to deliver."""
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
        """Compares a line of a new response with the delivered lines. The search ends at the last delivered line."""
        match = _STAMP.match(row)
        if match is None:
            return _Place.OLD  # the last part of a line that began before `since`
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
        """Records delivered lines. `equal` is the number of lines at the end that have the timestamp `stamp`."""
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
    """Whether a line of a response was delivered before. OPEN means that a part of the line was delivered."""

    OLD = 1
    OPEN = 2
    NEW = 3


def second_of(stamp: bytes) -> datetime:
    """Returns the time of a kubelet's timestamp in UTC, without fractions of a second.

    For a day that does not exist, such as 30 February, the result is a day of the next month.

    Raises:
        ValueError, OverflowError: the bytes are not a timestamp.
    """
    first = stamp[: len(b"2006-01-")] + b"01" + stamp[len(b"2006-01-02") : _SECOND] + stamp[_ZONE:]
    days = timedelta(days=int(stamp[len(b"2006-01-") : len(b"2006-01-02")]) - 1)
    return datetime.fromisoformat(first.decode()).astimezone(UTC) + days


def _later(a: bytes, b: bytes) -> bool:
    """Returns whether the timestamp `a` is later than `b`."""
    if a[_ZONE:] == b[_ZONE:]:
        return a > b
    return (second_of(a), a[_SECOND:_ZONE]) > (second_of(b), b[_SECOND:_ZONE])
