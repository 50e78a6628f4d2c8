"""Output as lines: prefixes each line with its source, cuts long lines, and joins the parts again.

`[rank 3] text` is a line of rank 3. `[rank 3+] text` is a part of a line that continues in the next line of rank 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ATOMIC = 4096  # PIPE_BUF of Linux: the kernel never interleaves writes of at most this size
LINE_LIMIT = 1 << 20
_TAIL_SIZE = 1 << 18


class Lines:
    """Prefixes each line of one stream with its source, many lines at a time.

    A line longer than `limit` bytes is returned in parts `[source+] ...`, so that memory stays bounded.
    """

    def __init__(self, source: str, limit: int = LINE_LIMIT) -> None:
        self.head = b"[%s] " % source.encode()
        self.part_head = b"[%s+] " % source.encode()
        self._limit = limit
        self._rest = bytearray()
        self._open = False

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes."""
        end = data.rfind(b"\n")
        if end < 0:
            return self._hold(data)
        return self.complete(self._take_rest() + data[:end]) + self._hold(data[end + 1 :])

    def complete(self, block: bytes) -> bytes:
        """Returns the prefixed lines of a block of whole lines that lacks its last line end."""
        return self.head + block.replace(b"\n", b"\n" + self.head) + b"\n"

    def finish(self) -> bytes:
        """Returns the last line, if the stream ended without a line end."""
        return self.complete(self._take_rest()) if self._rest or self._open else b""

    def _hold(self, data: bytes) -> bytes:
        self._rest += data
        if len(self._rest) <= self._limit:
            return b""
        part = self.part_head + self._take_rest() + b"\n"
        self._open = True
        return part

    def _take_rest(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        self._open = False
        return rest


def cut_into_writes(lines: bytes) -> list[bytes]:
    """Cuts whole lines into pieces of at most ATOMIC bytes; a line longer than that becomes `+` parts."""
    pieces = []
    at, size = 0, len(lines)
    while size - at > ATOMIC:
        end = lines.rfind(b"\n", at, at + ATOMIC) + 1
        if end == 0:
            end = lines.index(b"\n", at) + 1
            pieces += _parts(lines[at : end - 1])
        else:
            pieces.append(lines[at:end])
        at = end
    if at < size:
        pieces.append(lines[at:])
    return pieces


def _parts(line: bytes) -> list[bytes]:
    mark, _, text = line.partition(b"] ")
    part_mark = mark if mark.endswith(b"+") else mark + b"+"
    room = ATOMIC - len(part_mark) - 3
    cut = [text[at : at + room] for at in range(0, len(text), room)]
    return [b"%s] %s\n" % (part_mark, piece) for piece in cut[:-1]] + [b"%s] %s\n" % (mark, cut[-1])]


class PartJoiner:
    """Reads lines that `rank` processes wrote, and joins the parts of lines that were cut to fit one write.

    Args:
        on_event: called with the text of each `[stepset]` line; returns the bytes to print instead.
    """

    def __init__(self, on_event: Callable[[bytes], bytes]) -> None:
        self._on_event = on_event
        self._rest = b""
        self._parts: dict[bytes, bytearray] = {}

    def feed(self, data: bytes) -> bytes:
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return self.lines(data[:end])

    def lines(self, block: bytes) -> bytes:
        if not self._parts and b"+] " not in block and b"[stepset" not in block:
            return block
        out = []
        for line in block.split(b"\n")[:-1]:
            mark, _, text = line.partition(b"] ")
            if mark.endswith(b"+") and mark.startswith((b"[rank ", b"[stepset")):
                held = self._parts.setdefault(mark[:-1], bytearray())
                held += text
                if len(held) > LINE_LIMIT:
                    out.append(b"%s] %s\n" % (mark, bytes(held)))
                    held.clear()
                continue
            if mark in self._parts:
                text = bytes(self._parts.pop(mark)) + text
                line = b"%s] %s" % (mark, text)
            event = mark == b"[stepset" or mark.startswith(b"[stepset ")
            out.append(self._on_event(text) if event else line + b"\n")
        return b"".join(out)

    def finish(self, source: bytes | None = None) -> bytes:
        """Returns the lines of a source (None: of all) whose last part is missing because the rank was killed."""
        marks = [b"[" + source] if source else [m for m in self._parts if not m.startswith(b"[stepset")]
        held = [(mark, self._parts.pop(mark)) for mark in marks if mark in self._parts]
        return b"".join(b"%s] %s\n" % (mark, bytes(text)) for mark, text in held)


class LauncherLines(Lines):
    """The output of a launcher, which also contains lines of ranks that run in other pods."""

    def __init__(self, source: str, joiner: PartJoiner) -> None:
        super().__init__(source)
        self._joiner = joiner

    def complete(self, block: bytes) -> bytes:
        """Returns the lines of a block; lines of ranks keep their prefix and lose a tag such as --tag-output adds."""
        if b"[rank " not in block and b"[stepset" not in block:
            return super().complete(block)
        out = []
        for line in block.split(b"\n"):
            at = _rank_line(line)
            out.append(super().complete(line) if at < 0 else self._joiner.lines(line[at:] + b"\n"))
        return b"".join(out)


def _rank_line(line: bytes) -> int:
    """Returns where the line of a rank starts within a line of a launcher, or -1."""
    if line.startswith((b"[rank ", b"[stepset")):
        return 0
    import re

    tag = re.match(rb"(?:\[\d+,\d+\](?:<std(?:out|err)>)?: ?|\[\d+\] ?)(?=\[(?:rank \d|stepset))", line)
    return tag.end() if tag else -1


class Tail:
    """The end of a process's output, from which the cause of a failure is read.

    `traced` is when the last traceback began: the rank that failed first may be the last one to exit.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self.traced = 0.0

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * _TAIL_SIZE:
            del self._data[:-_TAIL_SIZE]
        if b"Traceback (most recent call last)" in data:
            self.traced = time.time()

    def text(self) -> str:
        """Returns at most the last 256 KiB of the output."""
        return bytes(self._data[-_TAIL_SIZE:]).decode("utf-8", "replace")

    def failed_at(self) -> float:
        """Returns when the failure that ends the process now happened: at its traceback, if that was just before."""
        now = time.time()
        return self.traced if now - self.traced < 10 else now
