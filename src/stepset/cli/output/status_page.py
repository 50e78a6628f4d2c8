"""Creates the output of `stepset status`."""

from __future__ import annotations

import time

from stepset.cli.output.outcome import took
from stepset.cli.output.run_table import PHASE_STYLES
from stepset.cli.output.shorten import cut
from stepset.cli.output.tables import Style, rendered, table
from stepset.run_status import Failure, Phase, RankStatus, RunStatus
from stepset.watch.present.failure_report import ended
from stepset.watch.present.hang import slow_words
from stepset.watch.present.outcome import result_text
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import duration, phase_words, progress_words, ranks_words, what_happened

_FOLLOW_UP = 40
"""If a rank has failed, the last line of every other rank is shortened to this width in cells."""


def status_page(status: RunStatus, flags: str | None = None) -> str:
    """Returns the state of a run, and a table with a row for each rank.

    For a running rank of a local run, the column PID contains the PID of the rank's process. The column LAST OUTPUT
    contains the age of the last line of a running rank. If the run has failed, the row of the rank that failed first is
    at the top. On a terminal, the column LAST LINE is shortened to the available width.

    `flags` are those of `command_for`.
    """
    held, now, phase = held_up(status, flags), time.time(), phase_words(status.phase, status.reason)
    about = [
        ("run", status.name),
        ("job", status.job),
        ("program", status.program),
        ("backend", status.backend),
        ("namespace", status.namespace),
        ("submitted by", status.submitted_by),
        ("labels", ",".join(f"{key}={value}" for key, value in status.labels.items())),
        ("phase", phase),
        ("ranks", ranks_words(status)),
        ("created", _clock(status.created)),
        ("expires", _clock(status.expires or 0.0)),
        ("duration" if status.phase.final else "age", duration(took(status))),
        ("continues", f"run {status.continues}" if status.continues else ""),
        ("restarts", str(status.attempt) if status.attempt else ""),
        ("progress", progress_words(status.progress)),
        ("result", "" if status.result is None else result_text(status)),
        ("failure", what_happened(status.failure) if status.failure else ""),
        *(held.rows if held is not None else ()),
        ("slow", slow_words(status.slow) if status.slow else ""),
        *(("note", note) for note in status.notes),
    ]
    styles: tuple[Style, ...] = ("bold", {phase: PHASE_STYLES.get(status.phase, "")})
    head = table(("", ""), [row for row in about if row[1]], styles, header=False)
    rows = [
        (
            row.source,
            row.pod,
            row.node,
            "" if row.pid is None else str(row.pid),
            row.state,
            str(row.restarts) if row.restarts else "",
            _ended(row),
            "" if row.last_line_at is None or row.state != "Running" else duration(int(now - row.last_line_at)),
            last_line,
        )
        for row, last_line in _ordered(status)
    ]
    if not rows:
        return rendered(head)
    columns = ("SOURCE", "POD", "NODE", "PID", "STATE", "RESTARTS", "ENDED", "LAST OUTPUT", "LAST LINE")
    rank_styles: tuple[Style, ...] = ("cyan", "", "", "", PHASE_STYLES)
    return rendered(head, "", table(columns, rows, rank_styles, cut_last=True, left_out=("NODE", "POD")))


def _ordered(status: RunStatus) -> list[tuple[RankStatus, str]]:
    """Returns a tuple for each rank: the status of the rank, and the last line of the rank.

    If a rank has failed, the tuple of this rank comes first. The last lines of all other ranks are shortened.
    """
    failure = status.failure
    first = None if failure is None else next((row for row in status.ranks if _failed_first(row, failure)), None)
    if first is None or status.phase is Phase.SUCCEEDED:
        return [(row, row.last_line) for row in status.ranks]
    others = [(row, cut(row.last_line, _FOLLOW_UP)) for row in status.ranks if row is not first]
    return [(first, first.last_line), *others]


def _ended(row: RankStatus) -> str:
    """Returns the exit code or the signal of a rank, such as `exit code 1` or `SIGTERM`; empty while the rank runs."""
    name = ended(row.exit_code, row.signal).partition("(")[2].rstrip(")")
    return name if name not in ("", "unknown") else ended(row.exit_code, row.signal)


def _failed_first(row: RankStatus, failure: Failure) -> bool:
    """Returns whether `row` is the status of the rank that failed first.

    If `failure` contains no rank, this function compares the pods.
    """
    return row.rank == failure.rank if failure.rank is not None else bool(row.pod) and row.pod == failure.pod


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
