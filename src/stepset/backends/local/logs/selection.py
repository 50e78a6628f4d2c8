"""Reads the lines that a `LogSelection` selects from a local run's log. Also reads the times of these lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from stepset.backends.base import LogSelection, TimedRow
from stepset.backends.local.logs.files import chunks
from stepset.backends.local.logs.times import LogTimes, attempt_range
from stepset.backends.local.runs.run_dir import RunDir
from stepset.errors import BadInputError
from stepset.watch.lines import Joiner, Splitter


def select_rows(run: RunDir, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
    """Yields the lines of a selection. `Backend.timed_rows` documents the arguments and errors."""
    times = LogTimes(run)
    if not times.exist:
        raise BadInputError(f"{run.name}: its log has no times, because an earlier version of stepset wrote it")
    start, end = 0, None
    if selection.previous:
        found = attempt_range(run, 1)
        if found is None:
            earlier = run.read().continues
            remedy = f"; it continues run {earlier}, see stepset logs {earlier}" if earlier else ""
            raise BadInputError(f"run {run.name} has no previous attempt{remedy}")
        start, end = found
    if selection.since is not None:
        start = max(start, times.first_since(selection.since, run.log.stat().st_size))
    return _with_tail(_blocks(run, selection, times, start, end), selection.tail)


def _with_tail(blocks: Iterator[list[TimedRow]], tail: int | None) -> Iterator[Sequence[TimedRow]]:
    """Yields the last `tail` rows of the existing rows, and then all later rows.

    The existing rows are the rows before the first empty block.
    """
    if tail is not None:
        last: deque[TimedRow] = deque(maxlen=tail)
        for block in blocks:
            last.extend(block)
            if not block:
                break
        yield list(last)
    yield from blocks


def _blocks(
    run: RunDir, selection: LogSelection, times: LogTimes, start: int, end: int | None
) -> Iterator[list[TimedRow]]:
    """Yields the lines from `start` to `end` in blocks. A block is empty if no more lines exist yet."""
    rows = _Rows(run, selection.sources)
    follow = selection.follow and end is None
    position = start
    for chunk in chunks(run, follow, start=start):
        if not chunk:
            yield []
            continue
        times.refresh()
        kept = chunk if end is None else chunk[: max(0, end - position)]
        if block := rows.of(kept, position, times):
            yield block
        position += len(chunk)
        if end is not None and position >= end:
            return


class _Rows:
    """Joins the parts of long lines, and selects the lines of `sources`."""

    def __init__(self, run: RunDir, sources: frozenset[str] | None) -> None:
        self._run = run
        self._heads = None if sources is None else tuple(f"[{source}] ".encode() for source in sources)
        self._splitter, self._joiner = Splitter("log"), Joiner()

    def of(self, chunk: bytes, position: int, times: LogTimes) -> list[TimedRow]:
        found: list[TimedRow] = []
        parted = self._run.parts.exists()
        for text in chunk.split(b"\n")[:-1]:
            line = text + b"\n"
            at = times.at(position)
            position += len(line)
            if parted and (self._joiner.waiting or b"+] " in line):
                complete = self._joiner.join(self._splitter.feed(line).lines)
                rows = [b"[%s] %s" % (source.encode(), whole) for source, whole in complete]
            else:
                rows = [text]
            found += [(at, row) for row in rows if self._heads is None or row.startswith(self._heads)]
        return found
