"""Writes, reads and follows the logs of a run.

`log` contains the lines of all sources as the agents print them (stepset.watch.lines); `ranks/<source>.log` contains
the output of one source, byte for byte.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from stepset.backends.local.store import RunDir
from stepset.watch.diagnose import TAIL
from stepset.watch.lines import Batch, Joiner, Splitter, log_lines
from stepset.watch.state import LogLine

_CHUNK = 256 * 1024
_OPEN_FILES = 128
_TAIL_BYTES = 1000
_POLL = 0.1
"""Seconds between two reads of a log that is being followed."""


class Recorder:
    """Writes a run's logs and keeps the last lines of each source; `broken` is the error that ended writing, if any."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._log = _append(run.log)
        self._files: OrderedDict[str, int] = OrderedDict()
        self._tails: dict[str, deque[str]] = {}
        self._parted = False
        self.broken: OSError | None = None

    def write(self, batch: Batch) -> None:
        """Appends a batch; after a failure nothing more is written."""
        for source, texts in _last_texts(batch).items():
            self._remember(source, texts)
        if self.broken is not None:
            return
        try:
            if batch.parts and not self._parted:
                self._parted = True
                self._run.parts.touch()  # before readers can see the first part
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
            fd = self._files[source] = _append(self._run.rank_log(source))
        self._files.move_to_end(source)
        return fd

    def _remember(self, source: str, texts: list[bytes]) -> None:
        tail = self._tails.setdefault(source, deque(maxlen=2 * TAIL))
        tail.extend(text[:_TAIL_BYTES].decode("utf-8", "replace") for text in texts)

    def tail(self, source: str) -> tuple[str, ...]:
        """Returns the last lines of a source; long lines are truncated."""
        return tuple(self._tails.get(source, ()))

    def forget(self) -> None:
        """Drops the last lines, because a new attempt begins."""
        self._tails.clear()

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
    # Texts and line ends alternate, except for parts of long lines, of which the last is enough.
    for source, pieces in batch.raw.items():
        last[source] = [piece for piece in pieces[-4 * TAIL :] if piece != b"\n"]
    return last


def _append(path: os.PathLike[str]) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


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
    with run.log.open("rb", buffering=0) as file:
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
