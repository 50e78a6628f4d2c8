"""Creates tables as text.

On a terminal, a table is at most as wide as the terminal. If stdout is not a terminal, the width is not limited.

A run may have ten thousand ranks, and a table has a row for each rank. Therefore speed matters. The Python
package `rich` needs 150 microseconds per row. This module needs 10 microseconds per row.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rich.cells import chop_cells

from stepset.cli.output.shorten import cells, cut
from stepset.cli.output.terminal import is_terminal, painted, wants_colour
from stepset.printable import printable

GAP = 2
"""The number of spaces between columns."""
_LEAST_LAST = 20
"""The minimum width of a last column with shortened cells, in cells of the terminal.

To reach this width, other columns are first omitted, then made narrower."""
Style = str | Mapping[str, str]
"""The style of the cells of a column, such as `bold cyan`, or a mapping from the text of a cell to its style."""
_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True)
class Line:
    """A string of one or more lines, and its style, such as `bold cyan`."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        rows: the rows, each with one cell for each column.
        styles: the style of each column.
        header: whether the first row contains the headings.
        cut_last: whether the cells of the last column are shortened if the terminal is too narrow. If `cut_last` is
            false, the cells of the last column are folded.
        left_out: the columns that may be omitted if `cut_last` is true. These columns are omitted one by one until the
            last column is wide enough.
    """

    rows: Sequence[Sequence[str]]
    styles: Sequence[Style]
    header: bool
    cut_last: bool = False
    left_out: Sequence[str] = ()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Sequence[Style] = (),
    *,
    header: bool = True,
    cut_last: bool = False,
    left_out: Sequence[str] = (),
) -> Table:
    """Returns a table. Columns that are empty in every row are omitted.

    The first column contains names that users copy. Therefore the first column is folded only if the terminal is
    narrower than this column.
    """
    texts = [[printable(cell).expandtabs() for cell in row] for row in rows]
    used = [index for index, column in enumerate(zip(*texts, strict=True)) if any(column)]
    shown = [[row[index] for index in used] for row in ([list(columns)] if header else []) + texts]
    last_is_cut = cut_last and bool(used) and used[-1] == len(columns) - 1
    return Table(shown, [styles[index] if index < len(styles) else "" for index in used], header, last_is_cut, left_out)


def rendered(*parts: str | Line | Table, wrap: bool = True) -> str:
    """Returns lines and tables as one string. The lines of the string have no trailing spaces.

    If stdout is a terminal, the result may contain colours, and tables fit the width of the terminal. If `wrap` is
    True, lines that are wider than the terminal are wrapped.
    """
    width = shutil.get_terminal_size().columns if wrap and is_terminal(sys.stdout) else None
    colour = wants_colour(sys.stdout)
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Table):
            lines += _table_lines(part, width, colour)
        else:
            line = Line(part) if isinstance(part, str) else part
            texts = (printable(each).expandtabs() for each in line.text.split("\n"))
            lines += (_styled(each.rstrip(), line.style, colour) for text in texts for each in _wrapped(text, width))
    return "".join(f"{line}\n" for line in lines)


def _table_lines(made: Table, width: int | None, colour: bool) -> Iterator[str]:
    if not made.styles:
        return
    if made.cut_last and width is not None:
        made = _with_last_cut(made, width)
    natural = [max(map(cells, column)) for column in zip(*made.rows, strict=True)]
    widths = natural if width is None else _narrowed(natural, width - GAP * (len(natural) - 1))
    for number, row in enumerate(made.rows):
        of_row = ["bold"] * len(row) if made.header and not number else made.styles
        styles = [
            style if isinstance(style, str) else style.get(cell, "") for cell, style in zip(row, of_row, strict=True)
        ]
        if widths is natural:
            yield _row(row, widths, styles, colour)
            continue
        wrapped = [list(_wrapped(cell, room)) for cell, room in zip(row, widths, strict=True)]
        for texts in zip_longest(*wrapped, fillvalue=""):
            yield _row(texts, widths, styles, colour)


def _with_last_cut(made: Table, width: int) -> Table:
    """Returns a copy of a table. The cells of the last column are shortened to the remaining width."""
    for title in ("", *made.left_out):
        if title in made.rows[0]:
            made = _without(made, made.rows[0].index(title))
        others = [max(map(cells, column)) + GAP for column in list(zip(*made.rows, strict=True))[:-1]]
        if width - sum(others) >= _LEAST_LAST:
            break
    room = max(width - sum(others), min(_LEAST_LAST, width))
    return replace(made, rows=[[*row[:-1], cut(row[-1], room)] for row in made.rows])


def _without(made: Table, index: int) -> Table:
    rows = [[*row[:index], *row[index + 1 :]] for row in made.rows]
    return replace(made, rows=rows, styles=[*made.styles[:index], *made.styles[index + 1 :]])


def _row(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str], colour: bool) -> str:
    last = max((index for index, text in enumerate(texts) if text), default=-1)
    parts = []
    for index in range(last + 1):
        space = "" if index == last else " " * (widths[index] - cells(texts[index]) + GAP)
        parts.append(_styled(texts[index], styles[index], colour) + space)
    return "".join(parts).rstrip()


def _narrowed(natural: Sequence[int], room: int) -> Sequence[int]:
    """Returns the widths of columns. The sum of the widths is at most `room`.

    The widest columns are made narrower first. The first column is made narrower only if the other columns cannot
    become narrower.
    """
    if sum(natural) <= room:
        return natural
    others = natural[1:]
    first = max(1, min(natural[0], room - len(others)))
    room = max(room - first, len(others))
    limit = max((each for each in range(1, room + 1) if sum(min(each, wide) for wide in others) <= room), default=1)
    return [first, *(min(limit, wide) for wide in others)]


def _wrapped(text: str, width: int | None) -> Iterator[str]:
    """Yields the lines of a string. Lines and words that are wider than `width` are folded."""
    if width is None or cells(text) <= width:
        yield text
        return
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cells(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        *full, line = chop_cells(word, width) or [""]
        yield from full
    yield line


def _styled(text: str, style: str, colour: bool) -> str:
    return painted(text, ";".join(_SGR[word] for word in style.split()), colour and bool(style and text))
