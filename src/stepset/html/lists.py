"""Renders runs and the lines of a run as HTML for notebooks. Contains only pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from stepset.html.card import STATE_CLASSES, card, cell, cut
from stepset.html.escaped import escaped
from stepset.printable import printable_line
from stepset.run_status import LogLine, Progress, RunStatus
from stepset.watch.present.outcome import result_text
from stepset.watch.present.run_cells import run_cells
from stepset.watch.present.sentences import counted, progress_words
from stepset.watch.present.sources import prefix, shown_text

MAX_RUNS = 200
"""The maximum number of rows in the table of runs."""
_LINE = 2000
"""The maximum number of characters of a line. Longer lines are truncated."""
_METRICS = 160
"""The maximum number of characters of a run's metrics."""
_TEXTS = ("PROGRAM", "METRICS", "RESULT", "VALUE", "RULE")
"""The columns whose cells wrap."""
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def run_list_html(runs: Sequence[RunStatus], now: float) -> str:
    """Returns a table of runs. `now` is in seconds since the epoch."""
    return card(_table(runs, now) if runs else ['<p class="quiet">no runs</p>'])


def variables_html(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a table of environment variables. The keys of a row are the titles of the columns."""
    return card(_rows(rows))


def _table(runs: Sequence[RunStatus], now: float) -> Iterator[str]:
    yield from _rows([{**run_cells(run, now), **_outcome(run)} for run in runs[:MAX_RUNS]])
    if len(runs) > MAX_RUNS:
        yield f'<p class="quiet">and {counted(len(runs) - MAX_RUNS, "more run")}</p>'


def _rows(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    names = [name for first in rows[:1] for name in first if any(row[name] for row in rows)]
    yield '<div class="scroll"><table>'
    yield f"<tr>{''.join(f'<th>{name.lower()}</th>' for name in names)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(_cell(name, row[name]) for name in names)}</tr>"
    yield "</table></div>"


def metrics_text(run: RunStatus) -> str:
    """Returns the metrics of the last progress report, such as `loss=0.31, lr=0.1`."""
    return progress_words(Progress(metrics=run.progress.metrics)) if run.progress else ""


def _outcome(run: RunStatus) -> dict[str, str]:
    """Returns the cells with the metrics of the last progress report and with the result, whose numbers are rounded."""
    result = json.loads(result_text(run), parse_float=lambda number: float(f"{float(number):.5g}"))
    return {"METRICS": metrics_text(run), "RESULT": "" if result is None else result_text(run.with_(result=result))}


def _cell(name: str, text: str) -> str:
    if name == "PHASE":
        return f'<td class="{STATE_CLASSES.get(text, "")}">{cell(text)}</td>'
    if name == "METRICS":  # a line break is between two metrics
        text = ", ".join(f"<span>{escaped(metric)}</span>" for metric in cut(text, _METRICS).split(", "))
        return f'<td class="text">{text}</td>'
    return f'<td class="text">{cell(text)}</td>' if name in _TEXTS else f"<td>{cell(text)}</td>"


def lines_html(run: str, lines: Sequence[LogLine], *, cut_off: bool) -> str:
    """Returns the lines of a run. `cut_off` states whether earlier lines are omitted."""
    shown = "\n".join(escaped(line_text(line)) for line in lines)
    return card(
        (
            f"<p><strong>{cell(run)}</strong></p>",
            f'<p class="quiet">the last {counted(len(lines), "line")}</p>' if cut_off else "",
            f"<pre>{shown}</pre>" if lines else '<p class="quiet">no lines</p>',
        )
    )


def line_text(line: LogLine) -> str:
    """Returns the text that a terminal would show for a line, with the prefix of the line but without colours."""
    return cut(f"{prefix(line.source)} {_COLOUR.sub('', printable_line(shown_text(line)))}", _LINE)
