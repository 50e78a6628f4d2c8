"""The table of `stepset list`: a row for each run. Pure except for the clock and the width of the terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepset.cli.output.ages import age, length
from stepset.cli.output.outcome import took
from stepset.cli.output.shorten import cells, cut, cut_middle
from stepset.cli.output.tables import GAP, rendered, table
from stepset.printable import printable
from stepset.run_status import Phase, Progress, RunStatus
from stepset.watch.present.sentences import progress_words, ranks_words

PHASE_STYLES = {Phase.SUCCEEDED: "green", Phase.FAILED: "bold red", Phase.LOST: "bold red", Phase.RUNNING: "cyan"}

_SHORTEST_PROGRAM = 8
"""Cells below which a program's text says nothing; the column is left out then."""
_MIDDLE_FROM = 16
"""Cells from which on a shortened program shows its end, too."""
_REASONS = (20, 12)
"""The longest reasons, in cells; the second number applies if the table is too wide otherwise."""
_LEFT_OUT_FIRST = ("PROGRAM", "PROGRESS", "TOOK", "SIZE", "RANKS", "REASON")
"""Columns that a narrow terminal does not show, in this order. A name is never shortened: users copy it, and two
shortened names could look the same."""


@dataclass(frozen=True)
class RunColumns:
    """The optional columns of the table.

    Args:
        namespaces: whether to show the namespace of each run.
        sizes: name of a run -> bytes of its files; None: no column.
        wide: whether nothing is shortened or left out.
    """

    namespaces: bool = False
    sizes: Mapping[str, int] | None = None
    wide: bool = False


def run_table(runs: Sequence[RunStatus], columns: RunColumns) -> str:
    """Returns the table; unless `wide`, it fits the terminal, or $COLUMNS or 80 columns if stdout is not a terminal."""
    now = time.time()
    rows = [_row(run, columns, now) for run in runs]
    names = list(rows[0]) if rows else []
    if not columns.wide:
        names, rows = _fitted(names, rows, shutil.get_terminal_size().columns)
    styles = ["cyan" if name == "NAME" else "" for name in names]
    return rendered(table(names, [[row[name] for name in names] for row in rows], styles), wrap=False)


def _row(run: RunStatus, columns: RunColumns, now: float) -> dict[str, str]:
    why = ", ".join(filter(None, (reason(run), "expired" if run.expired(now) else "")))
    size = None if columns.sizes is None else columns.sizes.get(run.name)
    row = {
        **({"NAMESPACE": run.namespace} if columns.namespaces else {}),
        "NAME": run.name,
        "PHASE": run.phase.value,
        "REASON": why if columns.wide else cut(why, _REASONS[0]),
        "RANKS": ranks_words(run).partition(" ")[0],  # without "ranks running", which the phase states
        "PROGRESS": progress_words(run.progress) if columns.wide else _short_progress(run.progress),
        "AGE": age(now - run.created) if run.created else "",
        "TOOK": length(took(run, now)) if run.created else "",
        **({} if columns.sizes is None else {"SIZE": "" if size is None else bytes_text(size)}),
        "PROGRAM": run.program,
    }
    return {name: printable(cell).expandtabs() for name, cell in row.items()}


def _fitted(names: list[str], rows: list[dict[str, str]], room: int) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the columns and rows that fit: texts are shortened, then columns are left out."""
    used = [name for name in names if any(row[name] for row in rows)]
    for hidden in (0, *range(len(_LEFT_OUT_FIRST) + 1)):
        kept = [name for name in used if name not in _LEFT_OUT_FIRST[:hidden]]
        widths = {name: max(cells(name), *(cells(row[name]) for row in rows)) for name in kept}
        free = room - sum(widths.values()) - GAP * (len(kept) - 1)
        if free >= 0:
            return kept, rows
        if "PROGRAM" in kept and widths["PROGRAM"] + free >= _SHORTEST_PROGRAM:
            left = widths["PROGRAM"] + free
            shorten = cut_middle if left >= _MIDDLE_FROM else cut
            return kept, [{**row, "PROGRAM": shorten(row["PROGRAM"], left)} for row in rows]
        rows = [{**row, "REASON": cut(row["REASON"], _REASONS[1])} for row in rows]
    return kept, rows


def reason(run: RunStatus) -> str:
    """Returns why a run is not running, or the kind of its failure; one word, or empty."""
    return run.reason or (run.failure.kind.value if run.failure else "")


def _short_progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if progress.progress is not None:
        return f"{100 * progress.progress:.0f} %"
    return "" if progress.step is None else f"step {progress.step}"


def bytes_text(size: int) -> str:
    """Returns a number of bytes as `du -h` writes it.

    >>> bytes_text(999), bytes_text(4096), bytes_text(12_345_678)
    ('999', '4.0K', '12M')
    """
    value, units = float(size), iter(("", "K", "M", "G", "T", "P"))
    unit = next(units)
    while value >= 1024 and (larger := next(units, None)) is not None:
        value, unit = value / 1024, larger
    return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"
