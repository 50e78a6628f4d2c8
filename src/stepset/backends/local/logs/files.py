"""Writes, reads and follows the logs of a run.

The file `log` contains the lines of all sources as the agents print them (stepset.watch.lines). The file
`ranks/<source>.log` contains the output of one source, byte for byte.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from stepset.backends.local.logs.times import TimeWriter
from stepset.backends.local.private_files import open_private, write_private
from stepset.backends.local.runs.run_dir import RunDir
from stepset.regular_files import open_regular
from stepset.run_status import LogLine
from stepset.watch.lines import Batch, Joiner, Splitter, log_lines

_CHUNK = 256 * 1024
_LINE_LIMIT = 4 * 1024 * 1024
"""The number of bytes after which a line of the log is truncated. Agents write only shorter lines. A longer line means
that another program has written the file."""
_OPEN_FILES = 128
_APPEND = os.O_WRONLY | os.O_APPEND
POLL = 0.1
"""The number of seconds between two reads of a log that is followed."""


class Recorder:
    """Writes the logs of a run.

    If a write fails, the recorder stores the error in `broken`, and writes nothing more.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._log = open_private(run.log, _APPEND)
        self._times = TimeWriter(run)
        self._files: OrderedDict[str, int] = OrderedDict()
        self._parted = False
        self.broken: OSError | None = None

    def write(self, batch: Batch) -> None:
        """Appends a batch. If a write has failed before, does nothing."""
        if self.broken is not None or not batch.raw:
            return
        try:
            if batch.parts and not self._parted:
                self._parted = True
                write_private(self._run.parts, b"")  # the file must exist before readers can see the first part
            if batch.shown:
                self._times.before(len(batch.shown))
                _write_all(self._log, batch.shown)
            for source, pieces in batch.raw.items():
                _write_all(self._file(source), b"".join(pieces))
        except OSError as error:
            self.broken = error
            # The disk may be full. Later output must not take the space that is reserved for the verdict.
            self._run.give_up_reserve()

    def _file(self, source: str) -> int:
        fd = self._files.get(source)
        if fd is None:
            if len(self._files) >= _OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
            fd = self._files[source] = open_private(self._run.rank_log(source), _APPEND)
        self._files.move_to_end(source)
        return fd

    def begin_attempt(self) -> None:
        """Records that a new attempt begins."""
        try:
            self._times.begin_attempt()
        except OSError as error:
            self.broken = self.broken or error

    def close(self) -> None:
        self._times.close()
        for fd in (self._log, *self._files.values()):
            with suppress(OSError):
                os.close(fd)
        self._files.clear()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_lines(
    run: RunDir, *, follow: bool = False, sources: frozenset[str] | None = None, poll: float = POLL
) -> Iterator[list[LogLine]]:
    """Yields the lines of a run in blocks, in the order in which they were printed.

    Args:
        follow: whether to continue until the run has finished. While the run prints nothing, the blocks are empty, so
            a caller can stop at any time.
        sources: the sources whose lines are yielded. None yields the lines of all sources.
    """
    splitter, joiner = Splitter("log"), Joiner()
    for chunk in chunks(run, follow, poll):
        batch = splitter.feed(chunk if sources is None else only(chunk, sources))
        yield list(log_lines(joiner.join(batch.lines)))
    yield list(log_lines(joiner.join(splitter.finish().lines)))


def copy_lines(
    run: RunDir, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None, poll: float = POLL
) -> None:
    """Writes the lines of `read_lines` in the form `[source] text`, and does not change the bytes of the lines.

    The function is faster than `read_lines`, because it parses only a few lines.
    """
    splitter, joiner, parted = Splitter("log"), Joiner(), False
    for chunk in chunks(run, follow, poll):
        kept = chunk if sources is None else only(chunk, sources)
        # Only lines that are split into parts have to be parsed.
        parted = parted or run.parts.exists()
        if not joiner.waiting and not (parted and b"+] " in kept):
            out.write(kept)
        else:
            complete = joiner.join(splitter.feed(kept).lines)
            out.writelines(b"[%s] %s\n" % (source.encode(), text) for source, text in complete)
        if follow:
            out.flush()
    out.flush()


def only(chunk: bytes, sources: frozenset[str]) -> bytes:
    """Returns the complete lines of `sources` that `chunk` contains."""
    if not sources:
        return b""
    heads = b"|".join(re.escape(s.encode()) for s in sorted(sources))
    return b"".join(re.findall(rb"^\[(?:%s)\+?\] .*\n" % heads, chunk, re.MULTILINE))


def chunks(run: RunDir, follow: bool, poll: float = POLL, start: int = 0) -> Iterator[bytes]:
    """Yields the log in chunks of complete lines, from the byte `start`. Chunks are empty while the run prints nothing.

    After the run has finished, an incomplete last line is also yielded.
    """
    with open_regular(run.log) as file:
        file.seek(start)
        rest = bytearray()
        over = not follow
        while True:
            data = file.read(_CHUNK)
            if data:
                end = data.rfind(b"\n") + 1
                if end:
                    yield bytes(rest) + data[:end] if rest else data[:end]
                    rest[:] = data[end:]
                else:
                    rest += data
                if len(rest) > _LINE_LIMIT:
                    yield bytes(rest) + b"\n"
                    rest.clear()
            elif over:
                break
            else:
                # If the run has finished, the log is read once more, because the run may have printed lines before its
                # end. Nothing is printed after the verdict.
                over = run.read().phase.final
                if not over:
                    yield b""
                    time.sleep(poll)
        if rest and run.read().phase.final:
            yield bytes(rest) + b"\n"
