"""Creates the table of `stepset list`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepset.backends.airflow_tasks import task_of
from stepset.cli.output.shorten import cells, cut, cut_middle
from stepset.cli.output.tables import GAP, Style, rendered, table
from stepset.cli.output.terminal import is_terminal
from stepset.printable import printable
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.run_cells import run_cells
from stepset.watch.present.sentences import progress_words, what_happened

PHASE_STYLES: Mapping[str, str] = {
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "bold red",
    Phase.LOST: "bold red",
    Phase.RUNNING: "cyan",
}

_SHORTEST_PROGRAM = 8
"""The minimum width of the column PROGRAM in cells. If less room is available, the column is omitted."""
_MIDDLE_FROM = 16
"""If the column PROGRAM has at least this width in cells, a shortened program includes the end of the program."""
_REASONS = (20, 12)
"""Two maximum widths of the column REASON in cells. If the table is too wide with the first width, the second width is
used. If room is left, the column is wider."""
_IF_ANY = ("TASK", "SUBMITTED BY", "TROUBLE")
"""The columns that are omitted if they have no text."""
_LEFT_OUT_FIRST = ("PROGRAM", "PROGRESS", "DURATION", "SIZE", "RANKS", "REASON")
"""The columns that are omitted on a narrow terminal, in this order.

The name of a run is never shortened, because users copy the name. Two shortened names could also be equal."""


@dataclass(frozen=True)
class RunColumns:
    """The optional columns of the table.

    Args:
        namespaces: whether to show the namespace of each run.
        sizes: a mapping from the name of a run to the size of its files in bytes. None means that the table has no
            column for sizes.
        wide: whether all columns are shown without shortening. Then the table may be wider than the terminal. If
            Airflow started one of the runs, the table also has the column TASK. If the account that submitted one of
            the runs is known, the table also has the column SUBMITTED BY. If a problem delays one of the runs, the
            table also has the column TROUBLE.
    """

    namespaces: bool = False
    sizes: Mapping[str, int] | None = None
    wide: bool = False


def run_table(runs: Sequence[RunStatus], columns: RunColumns) -> str:
    """Returns the table of the runs.

    If `columns.wide` is false, the table is at most as wide as the terminal. If stdout is not a terminal, the maximum
    width is the value of the variable COLUMNS. If COLUMNS is not set, nothing is shortened, because the next program
    of a pipe may search in the text.
    """
    now = time.time()
    rows = [_row(run, columns, now) for run in runs]
    names = [name for name in rows[0] if name not in _IF_ANY or any(row[name] for row in rows)] if rows else []
    if not columns.wide and (is_terminal(sys.stdout) or "COLUMNS" in os.environ):
        names, rows = _fitted(names, rows, shutil.get_terminal_size().columns)
    styles: Mapping[str, Style] = {"NAME": "cyan", "PHASE": PHASE_STYLES}
    shown = [[row[name] for name in names] for row in rows]
    return rendered(table(names, shown, [styles.get(name, "") for name in names]), wrap=False)


def _row(run: RunStatus, columns: RunColumns, now: float) -> dict[str, str]:
    size = None if columns.sizes is None else columns.sizes.get(run.name)
    found = run_cells(run, now)
    if columns.wide:
        found["PROGRESS"] = progress_words(run.progress)
    program = found.pop("PROGRAM")
    row = {
        **({"NAMESPACE": run.namespace} if columns.namespaces else {}),
        **found,
        **(_wide_cells(run) if columns.wide else {}),
        **({} if columns.sizes is None else {"SIZE": "" if size is None else bytes_text(size)}),
        "PROGRAM": program,
    }
    return {name: printable(cell).expandtabs() for name, cell in row.items()}


def _wide_cells(run: RunStatus) -> dict[str, str]:
    trouble = "" if run.trouble is None else what_happened(run.trouble)
    return {"TASK": task_of(run.labels), "SUBMITTED BY": run.submitted_by, "TROUBLE": trouble}


def _fitted(names: list[str], rows: list[dict[str, str]], room: int) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the columns and rows that fit into `room` cells. Shortens cells first, then omits columns.

    If room is left, the column REASON gets this room.
    """
    used = [name for name in names if any(row[name] for row in rows)]
    reasons, limit = [row["REASON"] for row in rows], _REASONS[0]
    for hidden in (0, *range(len(_LEFT_OUT_FIRST) + 1)):
        rows = _with(rows, "REASON", [cut(reason, limit) for reason in reasons])
        limit = _REASONS[1]
        kept = [name for name in used if name not in _LEFT_OUT_FIRST[:hidden]]
        widths = {name: max(cells(name), *(cells(row[name]) for row in rows)) for name in kept}
        free = room - sum(widths.values()) - GAP * (len(kept) - 1)
        if free >= 0:
            width = widths.get("REASON", 0) + free
            return kept, _with(rows, "REASON", [cut(reason, width) for reason in reasons])
        if "PROGRAM" in kept and widths["PROGRAM"] + free >= _SHORTEST_PROGRAM:
            left = widths["PROGRAM"] + free
            shorten = cut_middle if left >= _MIDDLE_FROM else cut
            return kept, _with(rows, "PROGRAM", [shorten(row["PROGRAM"], left) for row in rows])
    return kept, rows


def _with(rows: Sequence[dict[str, str]], name: str, values: Sequence[str]) -> list[dict[str, str]]:
    return [{**row, name: value} for row, value in zip(rows, values, strict=True)]


def bytes_text(size: int) -> str:
    """Returns a number of bytes in the notation of `du -h`.

    >>> bytes_text(999), bytes_text(4096), bytes_text(12_345_678)
    ('999', '4.0K', '12M')
    """
    value, units = float(size), iter(("", "K", "M", "G", "T", "P"))
    unit = next(units)
    while value >= 1024 and (larger := next(units, None)) is not None:
        value, unit = value / 1024, larger
    return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"
