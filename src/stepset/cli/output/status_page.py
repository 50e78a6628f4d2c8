"""The output of `stepset status` and `stepset list`. Pure except for the clock."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stepset.cli.output.outcome import result_text, took
from stepset.cli.output.tables import rendered, table
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import ended
from stepset.watch.present.records import held_up
from stepset.watch.present.sentences import duration, phase_words, progress_words, ranks_words, what_happened

_PHASE_STYLES = {Phase.SUCCEEDED: "green", Phase.FAILED: "bold red", Phase.LOST: "bold red", Phase.RUNNING: "cyan"}


def status_page(status: RunStatus) -> str:
    """A run with a row for each rank."""
    held = held_up(status)
    about = [
        ("run", status.name),
        ("job", status.job),
        ("backend", status.backend),
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
    styles = ("bold", _PHASE_STYLES.get(status.phase, ""))
    head = table(("", ""), [row for row in about if row[1]], styles, header=False)
    rows = [
        (
            row.source,
            row.pod,
            row.node,
            row.state,
            str(row.restarts) if row.restarts else "",
            ended(row.exit_code, row.signal),
            row.last_line,
        )
        for row in status.ranks
    ]
    if not rows:
        return rendered(head)
    ranks = table(("Who", "Pod", "Node", "State", "Restarts", "Ended", "Last line"), rows, ("cyan",))
    return rendered(head, "", ranks)


def list_page(runs: Iterable[RunStatus]) -> str:
    """A row for each run."""
    now = time.time()
    rows = [
        (
            run.name,
            run.job,
            run.phase.value,
            ", ".join(filter(None, (_why(run), "expired" if run.expired(now) else ""))),
            ranks_words(run).partition(" ")[0],  # without "ranks running", which the phase states
            progress_words(run.progress),
            _clock(run.created)[:-3],  # to the minute: a row must fit into a terminal
            duration(took(run)),
        )
        for run in runs
    ]
    if not rows:
        return "no runs are known here; start one with 'stepset run'\n"
    return rendered(table(("Run", "Job", "Phase", "Why", "Ranks", "Progress", "Created", "Took"), rows, ("cyan",)))


def _why(run: RunStatus) -> str:
    return run.reason or (run.failure.kind.value if run.failure else "")


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
