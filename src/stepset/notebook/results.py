"""The return types of the Python API. Notebooks and terminals show the values in a readable form."""

from __future__ import annotations

import time
from collections import UserList, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepset.errors import explain_interrupt
from stepset.html.flame_graph import stacks_html, stacks_page
from stepset.html.lists import line_text, lines_html, metrics_text, run_list_html, variables_html
from stepset.html.status import status_text
from stepset.plan.explain import ExplainRow
from stepset.printable import printable
from stepset.run_status import LogLine, RunStatus
from stepset.watch.present.run_cells import run_cells
from stepset.watch.present.stacks_text import stacks_text, time_words
from stepset.watch.stacks.model import RunStacks

SHOWN_LINES = 1000
"""The number of last lines of a log that a cell shows."""
_GAP = "  "


class RunList(UserList[RunStatus]):
    """A list of runs that is shown as a table. A slice of the list is shown as a table, too."""

    # The class inherits `__getitem__`. If the class defined the method, IPython would not complete `runs[0].`.

    def __repr__(self) -> str:
        """Returns a table of the runs, with the last metrics of each run."""
        now = time.time()
        return _aligned([_row(run, now) for run in self]) if self else "no runs"

    def _repr_html_(self) -> str:
        """Returns a table of the runs as HTML for notebooks. The table has at most 200 rows."""
        return run_list_html(self, time.time())


class ExplainRows(list[ExplainRow]):
    """The rows of `stepset.explain`, which are shown as a table."""

    def __repr__(self) -> str:
        """Returns a table of the variables."""
        return _aligned(self._cells()) if self else "no variables"

    def _repr_html_(self) -> str:
        """Returns a table of the variables as HTML for notebooks."""
        return variables_html(self._cells())

    def _cells(self) -> list[dict[str, str]]:
        several = len({row.group for row in self}) > 1
        return [
            {
                "GROUP": row.group if several else "",
                "VARIABLE": row.variable,
                "VALUE": row.value,
                "RULE": f"{row.rule}; replaces {row.replaced}" if row.replaced else row.rule,
            }
            for row in self
        ]


class Diagnosis(str):
    """The text that `stepset.diagnose` returns. A notebook shows the status of the run instead of the text."""

    __slots__ = ("status",)
    status: RunStatus

    def __new__(cls, status: RunStatus) -> Diagnosis:
        """Creates the diagnosis of a run."""
        new = super().__new__(cls, status_text(status, time.time()))
        new.status = status
        return new

    def __getnewargs__(self) -> tuple[RunStatus]:  # type: ignore[override]  # str returns a tuple[str]
        """Returns the arguments from which pickle creates an equal object."""
        return (self.status,)

    def __repr__(self) -> str:
        """Returns the text."""
        return str(self)

    def _repr_html_(self) -> str:
        """Returns the run's status as HTML for notebooks."""
        return self.status._repr_html_()


class Stacks(RunStacks):
    """The stacks that `stepset.stacks` returns. A notebook shows them as a flame graph, `print` as text."""

    @classmethod
    def of(cls, found: RunStacks) -> Stacks:
        """Returns the same stacks as an object of this class."""
        return cls(found.run, found.at, found.ranks, found.problems)

    def __repr__(self) -> str:
        """Returns the text that `stepset stacks` prints."""
        return "\n".join([stacks_text(self), *map(printable, self.problems)])

    def _repr_html_(self) -> str:
        """Returns the flame graph of the ranks as HTML for notebooks."""
        return stacks_html(self, time_words(self))

    def page(self) -> str:
        """Returns a self-contained HTML page with the flame graph of the ranks."""
        return stacks_page(self, time_words(self))


class LogLines(Iterator[LogLine]):
    """An iterator over the lines of a run.

    If the iterator is the value of a notebook cell, the notebook shows the existing lines, even if the iterator follows
    the run. A loop in the cell shows new lines.

    Args:
        run: the name of the run.
        lines: the iterator over the lines.
        existing: a function that returns the name of the run, which is not the name of the job, and another iterator
            over the existing lines. A notebook shows the lines of this iterator, and does not consume `lines`.
        interrupted: the message of a KeyboardInterrupt while the iterator waits for the next line. Default: no message.
    """

    def __init__(
        self,
        run: str,
        lines: Iterator[LogLine],
        existing: Callable[[], tuple[str, Iterator[LogLine]]],
        interrupted: str = "",
    ) -> None:
        self._run, self._lines, self._existing, self._interrupted = run, lines, existing, interrupted

    def __next__(self) -> LogLine:
        """Returns the next line."""
        try:
            return next(self._lines)
        except KeyboardInterrupt as error:
            if self._interrupted:
                explain_interrupt(error, self._interrupted)
            raise

    def close(self) -> None:
        """Stops reading. The iterator then yields no further lines."""
        if close := getattr(self._lines, "close", None):
            close()

    def __repr__(self) -> str:
        """Returns a short text. Reads no lines."""
        return f"<the lines of {printable(self._run)}; iterate over them>"

    def __str__(self) -> str:
        """Returns the existing lines as `stepset logs` prints them."""
        return "\n".join(map(str, self._existing()[1]))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Returns the last 1,000 existing lines as text and as HTML, for IPython and notebooks."""
        run, existing = self._existing()
        last = deque(existing, maxlen=SHOWN_LINES + 1)
        cut_off = len(last) > SHOWN_LINES
        lines = list(last)[-SHOWN_LINES:]
        return {
            "text/plain": "\n".join(map(line_text, lines)) or "no lines",
            "text/html": lines_html(run, lines, cut_off=cut_off),
        }


def _row(run: RunStatus, now: float) -> dict[str, str]:
    """Returns the cells of a run as text. The longest column is the last column."""
    cells = run_cells(run, now)
    program = cells.pop("PROGRAM")
    return {**cells, "METRICS": metrics_text(run), "PROGRAM": program}


def _aligned(rows: Sequence[dict[str, str]]) -> str:
    """Returns a table as text, with a header and the given rows. Empty columns are omitted."""
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    table = [names, *([printable(row[name]) for name in names] for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(names))]
    return "\n".join(
        _GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table
    )
