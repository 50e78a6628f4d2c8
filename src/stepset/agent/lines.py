"""Output as lines: prefixes each line with its source, cuts long lines, and joins the parts again.

`[rank 3] text` is a line of rank 3. `[rank 3+] text` is a part of a line that continues in the next line of rank 3.
`[rank 3~] text` is what an incomplete line of rank 3, for example a progress bar, currently shows on a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stepset.agent.redact import Redactor

ATOMIC = 4096  # PIPE_BUF of Linux: the kernel never interleaves writes of at most this size
LINE_LIMIT = 1 << 20
_TAIL_SIZE = 1 << 18

NO_SECRETS = Redactor()


class Lines:
    """Prefixes each line of one stream with its source, many lines at a time.

    A line longer than `limit` bytes is returned in parts `[source+] ...`, so that memory stays bounded. A line that
    contains values of `redactor` is preceded by an event with its redacted text. Of a line that overwrites itself
    (carriage returns), only the last state is a line; its other states are returned as `[source~] ...`, one per second.
    """

    def __init__(self, source: str, redactor: Redactor = NO_SECRETS, limit: int = LINE_LIMIT) -> None:
        self._source = source
        self._redactor = redactor
        self.head = b"[%s] " % source.encode()
        self.part_head = b"[%s+] " % source.encode()
        self._limit = limit
        self._rest = bytearray()
        self._open = False
        self._ended_part = False  # whether the next text continues a line
        self._state_at = 0.0

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes."""
        state = b""
        if b"\r" in data or b"\r" in self._rest:
            data = self._take_rest() + data
            while b"\x1b[A\n" in data:  # cursor up and down: tqdm, between two updates of an inner bar
                data = data.replace(b"\x1b[A\n", b"")
            *lines, rest = data.split(b"\n")
            if b"\r" in rest:
                # The carriage return at its start marks such a line; one at its end may be part of a line end.
                text = rest.rstrip(b"\r")
                shown = text.rpartition(b"\r")[2]
                rest = b"\r" + shown + rest[len(text) :]
                if time.monotonic() > self._state_at + 1:
                    self._state_at = time.monotonic()
                    state = self.head[:-2] + b"~] " + shown[:1000] + b"\n"
            data = b"\n".join([*map(_last_state, lines), rest])
        block, ended, rest = data.rpartition(b"\n")
        whole = self.complete(self._take_rest() + block) if ended else b""
        return whole + self._hold(rest) + state

    def complete(self, block: bytes) -> bytes:
        """Returns the prefixed lines of a block of whole lines that lacks its last line end."""
        block = self._redactor.reports(block)
        events = self._redactor.events(self._source, block, cut=self._ended_part)
        self._ended_part = False
        return events + self.head + block.replace(b"\n", b"\n" + self.head) + b"\n"

    def finish(self) -> bytes:
        """Returns the last line, if the stream ended without a line end."""
        return self.complete(_last_state(self._take_rest())) if self._rest or self._open else b""

    def _hold(self, data: bytes) -> bytes:
        self._rest += data
        if len(self._rest) <= self._limit:
            return b""
        text = _last_state(self._take_rest())
        events = self._redactor.events(self._source, text, cut=self._ended_part)
        self._open = self._ended_part = True
        return events + self.part_head + text + b"\n"

    def _take_rest(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        self._open = False
        return rest


def _last_state(line: bytes) -> bytes:
    """Returns what a line shows on a terminal after all carriage returns."""
    return line.replace(b"\x1b[A", b"").rstrip(b"\r").rpartition(b"\r")[2]


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
        redactor: as in `Lines`. A `rank` process does not redact its lines, because it cuts long lines into parts.
    """

    def __init__(self, on_event: Callable[[bytes], bytes], redactor: Redactor = NO_SECRETS) -> None:
        self._on_event = on_event
        self._redactor = redactor
        self._rest = b""
        self._parts: dict[bytes, bytearray] = {}

    def feed(self, data: bytes) -> bytes:
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return self.lines(data[:end])

    def lines(self, block: bytes) -> bytes:
        plain = not self._parts and b"+] " not in block and b"[stepset" not in block
        if plain and not self._redactor.concerns(block):
            return block
        out = []
        for line in block.split(b"\n")[:-1]:
            mark, found, text = line.partition(b"] ")
            joined = mark in self._parts
            if mark.endswith(b"+") and mark.startswith((b"[rank ", b"[stepset")):
                held = self._parts.setdefault(mark[:-1], bytearray())
                held += text
                if len(held) > LINE_LIMIT:
                    out.append(self._redacted(mark, bytes(held), cut=True))
                    held.clear()
                continue
            if joined:
                text = bytes(self._parts.pop(mark)) + text
            if mark == b"[stepset" or mark.startswith(b"[stepset "):
                out.append(self._on_event(text))
            else:
                out.append(self._redacted(mark, text, cut=joined) if found else line + b"\n")
        return b"".join(out)

    def _redacted(self, mark: bytes, text: bytes, *, cut: bool) -> bytes:
        """Returns the event with the redacted text, if any, and the line; `cut`: it may continue an earlier part."""
        text = self._redactor.reports(text)
        events = self._redactor.events(mark.strip(b"[+").decode("utf-8", "replace"), text, cut=cut)
        return events + b"%s] %s\n" % (mark, text)

    def finish(self, source: bytes | None = None) -> bytes:
        """Returns the lines of a source (None: of all) whose last part is missing because the rank was killed."""
        marks = [b"[" + source] if source else [m for m in self._parts if not m.startswith(b"[stepset")]
        held = [(mark, self._parts.pop(mark)) for mark in marks if mark in self._parts]
        return b"".join(self._redacted(mark, bytes(text), cut=True) for mark, text in held)


class LauncherLines(Lines):
    """The output of a launcher, which also contains lines of ranks that run in other pods."""

    def __init__(self, source: str, joiner: PartJoiner, redactor: Redactor = NO_SECRETS) -> None:
        super().__init__(source, redactor)
        self._joiner = joiner

    def complete(self, block: bytes) -> bytes:
        """Returns the lines of a block; lines of ranks keep their prefix, without the tag of --tag-output."""
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

    `traced` is the time of the last traceback: the rank that failed first may be the last one to exit.
    """

    def __init__(self, redactor: Redactor = NO_SECRETS) -> None:
        self.redactor = redactor
        self._data = bytearray()
        self._cut = False
        self.traced = 0.0

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * _TAIL_SIZE:
            del self._data[:-_TAIL_SIZE]
            self._cut = True
        if b"Traceback (most recent call last)" in data:
            self.traced = time.time()

    def text(self) -> str:
        """Returns at most the last 256 KiB of the output, redacted."""
        data = bytes(self._data[-_TAIL_SIZE:])
        cut = self._cut or len(self._data) > _TAIL_SIZE
        if cut:
            data = data.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a UTF-8 character that was cut
        return self.redactor.text(data.decode("utf-8", "replace"), cut=cut)

    def failed_at(self) -> float:
        """Returns the time of the failure that ended the process: of a traceback in the last 10 s, else now."""
        now = time.time()
        return self.traced if now - self.traced < 10 else now
