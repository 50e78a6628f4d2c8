"""Prints the output of `stepset logs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, cast

import typer

from stepset.backends.base import Backend, LogSelection
from stepset.cli.output.documents import time_text
from stepset.cli.output.live_rows import clear, live_rows
from stepset.cli.output.terminal import binary, close_stdout, is_terminal, source_prefix, wants_colour
from stepset.printable import printable_line
from stepset.run_status import LogLine
from stepset.watch.lines import OpenLine, without_rank_marks
from stepset.watch.live_lines import LiveLine
from stepset.watch.present.sources import shown_text

_PREFIX = re.compile(rb"^\[[^\]\n]*\] ", re.MULTILINE)


def print_logs(backend: Backend, name: str, *, follow: bool, sources: frozenset[str] | None, raw: bool) -> bool:
    """Writes the lines of a run to stdout. If `raw` is false, each line begins with the source of the line.

    Returns whether the run had lines. If a terminal shows a run that is followed, returns True.

    On a terminal, the sources are coloured, and control sequences that could change the display of other lines are
    removed. If stdout is not a terminal, the output of the ranks is written without changes, with one exception. If
    `raw` is false, this function removes the prefix that torch adds to lines, such as `[rank1]: `.
    """
    sys.stdout.flush()
    out = binary(sys.stdout)
    try:
        if not is_terminal(sys.stdout):
            rewritten = _Rewriter(out, partial(_PREFIX.sub, b"") if raw else without_rank_marks)
            backend.copy_log(name, cast(BinaryIO, rewritten), follow=follow, sources=sources)
            printed = rewritten.has_written
        elif follow and not raw:
            _print_live(backend.live_lines(name, sources), out)
            printed = True
        else:
            printed = _print_lines(backend.logs(name, follow=follow, sources=sources), out, raw, flush=follow)
        out.flush()
    except BrokenPipeError:
        close_stdout()
        raise typer.Exit(0) from None
    return printed


def print_selected(backend: Backend, name: str, selection: LogSelection, *, raw: bool, timestamps: bool) -> bool:
    """Writes the lines that `selection` selects to stdout, in the format of `print_logs`.

    Returns whether `selection` selects any lines. If `timestamps` is true, each line begins with the time of the line.
    """
    sys.stdout.flush()
    printed = False
    out, terminal, colour = binary(sys.stdout), is_terminal(sys.stdout), wants_colour(sys.stdout)
    try:
        for rows in backend.timed_rows(name, selection):
            for at, row in rows:
                source, _, text = (row if raw else without_rank_marks(row))[1:].partition(b"] ")
                if terminal:
                    text = printable_line(text.decode(errors="replace")).encode()
                head = b"" if raw else source_prefix(source.decode(), colour).encode()
                stamp = f"{time_text(at) or '-'} ".encode() if timestamps else b""
                out.write(b"%s%s%s\n" % (stamp, head, text))
                printed = True
            if selection.follow:
                out.flush()
        out.flush()
    except BrokenPipeError:
        close_stdout()
        raise typer.Exit(0) from None
    return printed


def _print_lines(lines: Iterator[LogLine], out: BinaryIO, raw: bool, flush: bool) -> bool:
    printed = False
    terminal, colour = is_terminal(sys.stdout), wants_colour(sys.stdout)
    prefixes: dict[str, bytes] = {}
    for line in lines:
        if not raw and line.source not in prefixes:
            prefixes[line.source] = source_prefix(line.source, colour).encode()
        text = line.text if raw else shown_text(line)
        text = printable_line(text) if terminal else text
        out.write((b"" if raw else prefixes[line.source]) + text.encode(errors="replace") + b"\n")
        printed = True
        if flush:
            out.flush()
    return printed


def _print_live(blocks: Iterator[Sequence[LiveLine]], out: BinaryIO) -> None:
    """Prints complete lines to a terminal. Below the complete lines, shows a row for each incomplete line."""
    colour = wants_colour(sys.stdout)
    rows, drawn = dict[str, OpenLine](), ""
    try:
        for block in blocks:
            text = ""
            for line in block:
                if isinstance(line, OpenLine):
                    rows[line.source] = line
                else:
                    text += f"{source_prefix(line.source, colour)}{printable_line(shown_text(line))}\n"
            if block:
                below = live_rows(rows, "", colour=colour)
                out.write(f"{clear(drawn)}{text}{below}".encode(errors="replace"))
                out.flush()
                drawn = below
    finally:
        out.write(clear(drawn).encode())
        out.flush()


class _Rewriter:
    """A stream that changes lines before it writes them. `copy_log` writes only complete lines to this stream."""

    def __init__(self, out: BinaryIO, change: Callable[[bytes], bytes]) -> None:
        self._out, self._change = out, change
        self.has_written = False

    def write(self, lines: bytes) -> int:
        self._out.write(self._change(lines))
        self.has_written = self.has_written or bool(lines)
        return len(lines)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._out.flush()
