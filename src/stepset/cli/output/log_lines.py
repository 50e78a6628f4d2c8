"""The output of `stepset logs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

import typer

from stepset.backends.base import Backend, LogSelection
from stepset.cli.output.documents import time_text
from stepset.cli.output.terminal import binary, close_stdout, is_terminal, source_prefix, wants_colour
from stepset.errors import BadInputError
from stepset.printable import printable_line
from stepset.run_status import LogLine, RunStatus
from stepset.watch.present.sources import shown_text
from stepset.watch.rank_mark import without_rank_marks

_MAX_RANKS = 100_000
"""Maximum number of ranks in one range, so that a typing error does not exhaust the memory."""
_PREFIX = re.compile(rb"^\[[^\]\n]*\] ", re.MULTILINE)


def sources_of(text: str) -> frozenset[str]:
    """Returns the sources of log lines that a `--ranks` list names; BadInputError if it is invalid.

    >>> sorted(sources_of("0,2-3,launcher"))
    ['launcher', 'rank 0', 'rank 2', 'rank 3']
    """
    sources: set[str] = set()
    for word in (w.strip() for w in text.split(",")):
        first, dash, last = word.partition("-")
        if word.isdecimal():
            sources.add(f"rank {int(word)}")
        elif dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            if int(last) - int(first) >= _MAX_RANKS:
                raise BadInputError(f"--ranks: {word!r} is more than {_MAX_RANKS} ranks; leave --ranks out for all")
            sources.update(f"rank {n}" for n in range(int(first), int(last) + 1))
        elif word and not word[0].isdigit():
            sources.add(word)
        else:
            raise BadInputError(f"--ranks: {word!r} is neither a rank nor a range; write it like 0,2 or 0-3")
    return frozenset(sources)


def check_sources(sources: frozenset[str], run: RunStatus) -> None:
    """Raises BadInputError for a rank that the run does not have."""
    numbers = {int(number) for kind, _, number in (s.partition(" ") for s in sources) if kind == "rank" and number}
    if not run.world_size or any(row.rank in numbers for row in run.ranks):
        return
    beyond = min((n for n in numbers if n >= run.world_size), default=None)
    if beyond is not None:
        last = run.world_size - 1
        has = f"ranks 0 to {last}" if last else "rank 0 alone"
        raise BadInputError(f"--ranks: {run.name} has no rank {beyond}; it has {has}")


def print_logs(backend: Backend, name: str, *, follow: bool, sources: frozenset[str] | None, raw: bool) -> None:
    """Writes the lines of a run to stdout, prefixed with their source unless `raw`.

    On a terminal, lines are coloured, and control sequences that would break lines are removed; other outputs get the
    bytes that the ranks printed. A prefixed line is written without the mark `[rank1]: ` of torch.
    """
    sys.stdout.flush()
    out = binary(sys.stdout)
    try:
        if not is_terminal(sys.stdout):
            rewritten = _Rewriter(out, _without_prefixes if raw else without_rank_marks)
            backend.copy_log(name, cast(BinaryIO, rewritten), follow=follow, sources=sources)
        else:
            _print_lines(backend.logs(name, follow=follow, sources=sources), out, raw, flush=follow)
        out.flush()
    except BrokenPipeError:
        close_stdout()
        raise typer.Exit(0) from None


def print_selected(backend: Backend, name: str, selection: LogSelection, *, raw: bool, timestamps: bool) -> None:
    """Writes the lines that a selection names, as `print_logs` does; `timestamps` begins each line with its time."""
    sys.stdout.flush()
    out, terminal, colour = binary(sys.stdout), is_terminal(sys.stdout), wants_colour(sys.stdout)
    try:
        for rows in backend.timed_rows(name, selection):
            for at, row in rows:
                source, _, text = row[1:].partition(b"] ")
                if terminal:
                    text = printable_line(text.decode(errors="replace")).encode()
                head = b"" if raw else source_prefix(source.decode(), colour).encode()
                stamp = f"{time_text(at) or '-'} ".encode() if timestamps else b""
                out.write(b"%s%s%s\n" % (stamp, head, text))
            if selection.follow:
                out.flush()
        out.flush()
    except BrokenPipeError:
        close_stdout()
        raise typer.Exit(0) from None


def _print_lines(lines: Iterator[LogLine], out: BinaryIO, raw: bool, flush: bool) -> None:
    terminal, colour = is_terminal(sys.stdout), wants_colour(sys.stdout)
    prefixes: dict[str, bytes] = {}
    for line in lines:
        if not raw and line.source not in prefixes:
            prefixes[line.source] = source_prefix(line.source, colour).encode()
        text = line.text if raw else shown_text(line)
        text = printable_line(text) if terminal else text
        out.write((b"" if raw else prefixes[line.source]) + text.encode(errors="replace") + b"\n")
        if flush:
            out.flush()


def _without_prefixes(lines: bytes) -> bytes:
    return _PREFIX.sub(b"", lines)


class _Rewriter:
    """Writes changed lines. `copy_log` writes only whole lines."""

    def __init__(self, out: BinaryIO, change: Callable[[bytes], bytes]) -> None:
        self._out, self._change = out, change

    def write(self, lines: bytes) -> int:
        self._out.write(self._change(lines))
        return len(lines)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._out.flush()
