"""Processes output as lines. Prefixes each line with its source, cuts long lines, and joins the parts again.

`[rank 3] text` is a line of rank 3. `[rank 3+] text` is a part of a line that continues in the next line of rank 3.
`[rank 3~] text` is the text that an incomplete line of rank 3, for example a progress bar, shows on a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stepset.agent.redact import Redactor

ATOMIC = 4096  # PIPE_BUF of Linux: the kernel never interleaves writes of at most this size
LINE_LIMIT = 1 << 20
STATE_LIMIT = 4096  # maximum size of a line with carriage returns; `feed` reads the whole line again after each update
_TAIL_SIZE = 1 << 18

NO_SECRETS = Redactor()


class Lines:
    """Prefixes each line of a stream with its source. To be fast, it processes many lines at a time.

    A line longer than `limit` bytes is returned in parts `[source+] ...`, to limit memory. Before a line with values
    that `redactor` replaces, an event with the redacted line is returned. If a line overwrites itself by carriage
    returns, its last state is returned as a line. Other states are returned as `[source~] ...`, at most one per second,
    unless they contain values that `redactor` replaces.
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
        self._state_at = 0.0  # the earliest time of the next state

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes."""
        state = b""
        if b"\r" in data or b"\r" in self._rest:
            data = self._take_rest() + data
            # Between two updates of an inner bar, tqdm prints a cursor-up and a line end, which undo each other. Each
            # pass handles one nested bar. A loop that runs until no cursor-up is left would take quadratic time.
            for _ in range(20):
                data = data.replace(b"\x1b[A\n", b"")
            *lines, rest = data.split(b"\n")
            if b"\r" in rest:
                # "\r" at the start marks a line that overwrites itself. "\r" at the end may be part of a line end.
                shown = rest.rstrip(b"\r").rpartition(b"\r")[2]
                rest = b"\r" + shown + b"\r" * rest.endswith(b"\r")
                if time.monotonic() > self._state_at and not self._redactor.concerns(shown):
                    self._state_at = time.monotonic() + 1
                    state = self.head[:-2] + b"~] " + shown[:1000] + b"\n"
            data = b"\n".join([*map(_last_state, lines), rest])
        block, ended, rest = data.rpartition(b"\n")
        whole = self.complete(self._take_rest() + block) if ended else b""
        return whole + self._hold(rest) + state

    def complete(self, block: bytes) -> bytes:
        """Returns the lines of `block` with prefixes. The last line of `block` is complete, but has no line end."""
        block = self._redactor.reports(block)
        events = self._redactor.events(self._source, block, cut=self._ended_part)
        self._ended_part = False
        return events + self.head + block.replace(b"\n", b"\n" + self.head) + b"\n"

    def finish(self) -> bytes:
        """Returns the last line, if the stream ended without a line end."""
        return self.complete(_last_state(self._take_rest())) if self._rest or self._open else b""

    def _hold(self, data: bytes) -> bytes:
        self._rest += data
        if len(self._rest) <= (STATE_LIMIT if data[:1] == b"\r" else self._limit):
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
    """Returns the text that a terminal shows after all carriage returns of a line."""
    return line.replace(b"\x1b[A", b"").rstrip(b"\r").rpartition(b"\r")[2]


def cut_into_writes(lines: bytes) -> list[bytes]:
    """Cuts whole lines into pieces of at most ATOMIC bytes. Lines that are longer are cut into `+` parts."""
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
    part_mark = mark.rstrip(b"+") + b"+"
    room = ATOMIC - len(part_mark) - 3
    cut = [text[at : at + room] for at in range(0, len(text), room)]
    return [b"%s] %s\n" % (part_mark, piece) for piece in cut[:-1]] + [b"%s] %s\n" % (mark, cut[-1])]


class PartJoiner:
    """Reads the lines that `rank` processes wrote, and joins the parts of long lines.

    Args:
        on_event: a function that gets the text of each `[stepset]` line and returns the bytes to print instead.
        redactor: see `Lines`. A `rank` process does not redact its lines, because it cuts long lines into parts.
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
            elif not mark.endswith(b"~"):  # a state may contain a value, and the next one follows within seconds
                out.append(self._redacted(mark, text, cut=joined) if found else line + b"\n")
        return b"".join(out)

    def _redacted(self, mark: bytes, text: bytes, *, cut: bool) -> bytes:
        """Returns the events for a line, and then the line. `cut`: whether the line may continue an earlier part."""
        text = self._redactor.reports(text)
        events = self._redactor.events(mark.strip(b"[+").decode("utf-8", "replace"), text, cut=cut)
        return events + b"%s] %s\n" % (mark, text)

    def finish(self, source: bytes | None = None) -> bytes:
        """Returns lines whose last part is missing because the rank was killed. Default: the lines of all sources."""
        marks = [b"[" + source] if source else [m for m in self._parts if not m.startswith(b"[stepset")]
        held = [(mark, self._parts.pop(mark)) for mark in marks if mark in self._parts]
        return b"".join(self._redacted(mark, bytes(text), cut=True) for mark, text in held)


class LauncherLines(Lines):
    """Prefixes the output lines of a launcher. The output also contains lines of ranks in other pods."""

    def __init__(self, source: str, joiner: PartJoiner, redactor: Redactor = NO_SECRETS) -> None:
        super().__init__(source, redactor)
        self._joiner = joiner

    def complete(self, block: bytes) -> bytes:
        """Returns the lines of a block. Lines of ranks keep their prefix, but not the tag of mpirun's --tag-output."""
        if b"[rank " not in block and b"[stepset" not in block:
            return super().complete(block)
        out = []
        for line in block.split(b"\n"):
            at = _rank_line(line)
            out.append(super().complete(line) if at < 0 else self._joiner.lines(line[at:] + b"\n"))
        return b"".join(out)


def _rank_line(line: bytes) -> int:
    """Returns the index at which the output of a rank starts in a launcher's line, or -1 if there is no output."""
    if line.startswith((b"[rank ", b"[stepset")):
        return 0
    import re

    tag = re.match(rb"(?:\[\d+,\d+\](?:<std(?:out|err)>)?: ?|\[\d+\] ?)(?=\[(?:rank \d|stepset))", line)
    return tag.end() if tag else -1


class Tail:
    """The end of a process's output, from which the cause of a failure is read.

    `traced` is the time of the last traceback. It is needed because the rank that fails first may be the last to exit.
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
        """Returns at most the last 256 KiB of the output, redacted and without colours."""
        data = bytes(self._data[-_TAIL_SIZE:])
        cut = self._cut or len(self._data) > _TAIL_SIZE
        if cut:
            data = data.lstrip(bytes(range(0x80, 0xC0)))  # Removes the rest of a UTF-8 character that was cut.
        if b"\x1b[" in data:
            import re  # only a failed process needs this import, which takes milliseconds

            data = re.sub(rb"\x1b\[[\d;]{0,32}m", b"", data)  # Colours within a secret would hide it from the redactor.
        return self.redactor.text(data.decode("utf-8", "replace"), cut=cut)

    def failed_at(self) -> float:
        """Returns the time of the failure. It is the time of a traceback in the last 10 s, or the current time."""
        now = time.time()
        return self.traced if now - self.traced < 10 else now
