"""Writes, reads and follows the logs of a run.

`log` contains the lines of all sources as the agents print them (stepset.watch.lines); `ranks/<source>.log` contains
the output of one source, byte for byte.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from stepset.backends.local.private_files import open_private, write_private
from stepset.backends.local.store import RunDir
from stepset.regular_files import open_regular
from stepset.run_status import LogLine
from stepset.watch.diagnose import TAIL
from stepset.watch.lines import Batch, Joiner, Splitter, log_lines
from stepset.watch.redacted_lines import KEPT, RedactedLines

_CHUNK = 256 * 1024
_OPEN_FILES = 128
_APPEND = os.O_WRONLY | os.O_APPEND
_POLL = 0.1
"""Seconds between two reads of a log that is being followed."""


class Recorder:
    """Writes a run's logs and keeps the last lines of each source; `broken` is the error that ended writing, if any."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._log = open_private(run.log, _APPEND)
        self._files: OrderedDict[str, int] = OrderedDict()
        self._tails: dict[str, deque[bytes]] = {}
        self._redacted = RedactedLines()
        self._parted = False
        self.broken: OSError | None = None

    def see(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Reads the agents' events about lines with values of Secrets; such an event precedes its line."""
        self._redacted.see(events)

    def write(self, batch: Batch) -> None:
        """Appends a batch; after a failure nothing more is written."""
        for source, texts in _last_texts(batch).items():
            self._remember(source, texts)
        if self.broken is not None:
            return
        try:
            if batch.parts and not self._parted:
                self._parted = True
                write_private(self._run.parts, b"")  # before readers can see the first part
            if batch.shown:
                _write_all(self._log, batch.shown)
            for source, pieces in batch.raw.items():
                _write_all(self._file(source), b"".join(pieces))
        except OSError as error:
            self.broken = error
            # Later output must not take the space that the verdict needs.
            self._run.give_up_reserve()

    def _file(self, source: str) -> int:
        fd = self._files.get(source)
        if fd is None:
            if len(self._files) >= _OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
            fd = self._files[source] = open_private(self._run.rank_log(source), _APPEND)
        self._files.move_to_end(source)
        return fd

    def _remember(self, source: str, texts: list[bytes]) -> None:
        tail = self._tails.setdefault(source, deque(maxlen=2 * TAIL))
        tail.extend(text[:KEPT] for text in texts)

    def tail(self, source: str) -> tuple[str, ...]:
        """Returns the last lines of a source, redacted; long lines are truncated."""
        return tuple(self._redacted.shown(source, line) for line in self._tails.get(source, ()))

    def last_line(self, source: str) -> str:
        """Returns the last line of a source, redacted; a long line is truncated. Empty if there is none."""
        lines = self._tails.get(source)
        return self._redacted.shown(source, lines[-1]) if lines else ""

    def forget(self) -> None:
        """Drops the last lines, because a new attempt begins."""
        self._tails.clear()
        self._redacted.clear()

    def close(self) -> None:
        for fd in (self._log, *self._files.values()):
            with suppress(OSError):
                os.close(fd)
        self._files.clear()


def _last_texts(batch: Batch) -> dict[str, list[bytes]]:
    """Returns source -> its last lines in the batch, without progress lines."""
    last: dict[str, list[bytes]] = {}
    if batch.progress:
        for head, text in batch.lines:
            last.setdefault(head.source, []).append(text)
        return last
    # A line is two pieces, its text and its line end, so 4 * TAIL pieces contain the 2 * TAIL lines that are kept. A
    # part of a long line is one piece, and counts as a line.
    for source, pieces in batch.raw.items():
        last[source] = [piece for piece in pieces[-4 * TAIL :] if piece != b"\n"]
    return last


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_lines(
    run: RunDir, *, follow: bool = False, sources: frozenset[str] | None = None, poll: float = _POLL
) -> Iterator[list[LogLine]]:
    """Yields the lines of a run, or of `sources` only, in blocks, in the order in which they were printed.

    `follow` continues until the run is over, with empty blocks while the run prints nothing, so that callers can stop.
    """
    splitter, joiner = Splitter("log"), Joiner()
    for chunk in _chunks(run, follow, poll):
        batch = splitter.feed(chunk if sources is None else _only(chunk, sources))
        yield list(log_lines(joiner.join(batch.lines)))
    yield list(log_lines(joiner.join(splitter.finish().lines)))


def copy_lines(
    run: RunDir, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None, poll: float = _POLL
) -> None:
    """Writes the lines of `read_lines` as `[source] text`, bytes unchanged; faster, because it parses few lines."""
    splitter, joiner, parted = Splitter("log"), Joiner(), False
    for chunk in _chunks(run, follow, poll):
        kept = chunk if sources is None else _only(chunk, sources)
        # Only lines in parts have to be parsed, and only if there are any.
        parted = parted or run.parts.exists()
        if not joiner.waiting and not (parted and b"+] " in kept):
            out.write(kept)
        else:
            complete = joiner.join(splitter.feed(kept).lines)
            out.writelines(b"[%s] %s\n" % (source.encode(), text) for source, text in complete)
        if follow:
            out.flush()
    out.flush()


def _only(chunk: bytes, sources: frozenset[str]) -> bytes:
    if not sources:
        return b""
    heads = b"|".join(re.escape(s.encode()) for s in sorted(sources))
    return b"".join(re.findall(rb"^\[(?:%s)\+?\] .*\n" % heads, chunk, re.MULTILINE))


def _chunks(run: RunDir, follow: bool, poll: float) -> Iterator[bytes]:
    """Yields the log in chunks of whole lines; after the end of a run, also an incomplete last line.

    Yields empty chunks while the run prints nothing.
    """
    with open_regular(run.log) as file:
        rest = b""
        over = not follow
        while True:
            data = file.read(_CHUNK)
            if data:
                end = data.rfind(b"\n") + 1
                if end:
                    yield rest + data[:end] if rest else data[:end]
                    rest = data[end:]
                else:
                    rest += data
            elif over:
                break
            else:
                # Read the state first and the log once more after it: nothing is printed after the verdict.
                over = run.read().phase.final
                if not over:
                    yield b""
                    time.sleep(poll)
        if rest and run.read().phase.final:
            yield rest + b"\n"
