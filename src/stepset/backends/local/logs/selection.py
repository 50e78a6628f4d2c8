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
    sources, follow = selection.sources, selection.follow and end is None
    heads = None if sources is None else tuple(f"[{source}] ".encode() for source in sources)
    splitter, joiner, position = Splitter("log"), Joiner(), start
    for chunk in chunks(run, follow, start=start):
        if not chunk:
            yield []
            continue
        times.refresh()
        kept = chunk if end is None else chunk[: max(0, end - position)]
        rows = _rows(kept, position, times, splitter, joiner if run.parts.exists() else None)
        if block := [row for row in rows if heads is None or row[1].startswith(heads)]:
            yield block
        position += len(chunk)
        if end is not None and position >= end:
            return


def _rows(
    chunk: bytes, position: int, times: LogTimes, splitter: Splitter, joiner: Joiner | None
) -> Iterator[TimedRow]:
    """Yields the lines of a chunk with their times. `joiner` joins the parts of long lines, if the log has parts."""
    for text in chunk.split(b"\n")[:-1]:
        at, complete = times.at(position), [text]
        position += len(text) + 1
        if joiner is not None and (joiner.waiting or b"+] " in text):
            parts = joiner.join(splitter.feed(text + b"\n").lines)
            complete = [b"[%s] %s" % (source.encode(), whole) for source, whole in parts]
        yield from ((at, row) for row in complete)
