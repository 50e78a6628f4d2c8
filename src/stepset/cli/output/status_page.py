"""The output of `stepset status`. Pure except for the clock."""

from __future__ import annotations

import time

from stepset.cli.output.outcome import result_text, took
from stepset.cli.output.run_table import PHASE_STYLES
from stepset.cli.output.shorten import cut
from stepset.cli.output.tables import rendered, table
from stepset.run_status import Failure, Phase, RankStatus, RunStatus
from stepset.watch.present.failure_report import ended
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import duration, phase_words, progress_words, ranks_words, what_happened

_FOLLOW_UP = 40
"""Maximum width, in cells, of the last lines of all ranks except the one that failed first."""


def status_page(status: RunStatus) -> str:
    """Returns a run with a row for each rank; a terminal shows the beginning of each last line.

    Of a failed run, the row of the rank that failed first comes first.
    """
    held = held_up(status)
    about = [
        ("run", status.name),
        ("job", status.job),
        ("program", status.program),
        ("backend", status.backend),
        ("namespace", status.namespace),
        ("labels", ",".join(f"{key}={value}" for key, value in status.labels.items())),
        ("phase", phase_words(status.phase, status.reason)),
        ("ranks", ranks_words(status)),
        ("created", _clock(status.created)),
        ("expires", _clock(status.expires or 0.0)),
        ("took" if status.phase.final else "age", duration(took(status))),
        ("restarts", str(status.attempt) if status.attempt else ""),
        ("progress", progress_words(status.progress)),
        ("result", "" if status.result is None else result_text(status)),
        ("failure", what_happened(status.failure) if status.failure else ""),
        *(held.rows if held is not None else ()),
        *(("note", note) for note in status.notes),
    ]
    styles = ("bold", PHASE_STYLES.get(status.phase, ""))
    head = table(("", ""), [row for row in about if row[1]], styles, header=False)
    rows = [
        (
            row.source,
            row.pod,
            row.node,
            row.state,
            str(row.restarts) if row.restarts else "",
            _ended(row),
            last_line,
        )
        for row, last_line in _ordered(status)
    ]
    if not rows:
        return rendered(head)
    columns = ("WHO", "POD", "NODE", "STATE", "RESTARTS", "ENDED", "LAST LINE")
    return rendered(head, "", table(columns, rows, ("cyan",), cut_last=True, left_out=("NODE", "POD")))


def _ordered(status: RunStatus) -> list[tuple[RankStatus, str]]:
    """Returns the rows and their last lines: the first failure first, the last lines of the others shortened."""
    failure = status.failure
    first = None if failure is None else next((row for row in status.ranks if _failed_first(row, failure)), None)
    if first is None or status.phase is Phase.SUCCEEDED:
        return [(row, row.last_line) for row in status.ranks]
    others = [(row, cut(row.last_line, _FOLLOW_UP)) for row in status.ranks if row is not first]
    return [(first, first.last_line), *others]


def _ended(row: RankStatus) -> str:
    """Returns how a rank ended, such as `exit code 1` or `SIGTERM`; empty while it runs."""
    name = ended(row.exit_code, row.signal).partition("(")[2].rstrip(")")
    return name if name not in ("", "unknown") else ended(row.exit_code, row.signal)


def _failed_first(row: RankStatus, failure: Failure) -> bool:
    """Whether a row is that of the rank that failed first or, if no rank is known, of its pod."""
    return row.rank == failure.rank if failure.rank is not None else bool(row.pod) and row.pod == failure.pod


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
