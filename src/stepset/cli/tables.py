"""Tables, by rich: as wide as the terminal, or as wide as the text where there is none."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from stepset.cli.terminal import is_terminal, printable

_UNLIMITED = 1 << 16


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> Table:
    """A plain table; cells are text, never markup. A column that is empty in every row is left out.

    The first column, a name to be copied, is whole as long as the terminal is wide enough for it.

    Args:
        columns: headings.
        rows: one text per column.
        styles: rich styles per column.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i in used:
        style = styles[i] if i < len(styles) else ""
        made.add_column(columns[i], style=style, overflow="fold", no_wrap=i == used[0])
    for row in cells:
        made.add_row(*(Text(row[i]) for i in used))
    return made


def rendered(*parts: RenderableType) -> str:
    """What rich makes of these parts for this stdout, as text."""
    terminal = is_terminal(sys.stdout)
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=None if terminal else _UNLIMITED,
        highlight=False,
        markup=False,
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
