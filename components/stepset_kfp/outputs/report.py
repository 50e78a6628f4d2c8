"""Creates the report of a run. The report is an HTML file with the ranks, phases, curves and diagnosis of the run.

The file contains no scripts and loads no resources, because KFP embeds the file in a page of KFP. The output of the run
is escaped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

from stepset.html.charts import metric_charts
from stepset.html.escaped import escaped, text_cell, titled_row
from stepset.run_status import Failure, Phase, ProgressPoint, RunStatus
from stepset.watch.present.failure_report import ended, failure_rows
from stepset.watch.present.records import PhaseChanged, Record, RunEnded
from stepset.watch.present.sentences import counted, duration, end_sentence
from stepset_kfp.outputs.history import ReportHistory

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --quiet: #626b7c; --line: #d9dde5; --back: #ffffff; --card: #f6f7fa;
  --mark: #5b3fd6; --good: #17784b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --quiet: #9aa3b5; --line: #363c4a; --back: #14171e;
  --card: #1c212b; --mark: #a996ff; --good: #5fd39a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; color: var(--ink); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; } .quiet { color: var(--quiet); } .good { color: var(--good); } .bad { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  white-space: nowrap; }
td.text { white-space: normal; min-width: 16rem; }
th { color: var(--quiet); font-weight: 600; }
pre { overflow-x: auto; margin: .5rem 0 0; font: 13px/1.45 ui-monospace, monospace; }
svg { width: 100%; min-width: 24rem; height: auto; display: block; }
.curve { fill: none; stroke: var(--mark); stroke-width: 2; } .dot { fill: var(--mark); }
.grid { stroke: var(--line); } .tick { fill: var(--quiet); font-size: 12px; }
"""


def report_html(status: RunStatus, history: ReportHistory) -> str:
    """Returns the HTML of the report. `status` is the last status of the run."""
    good = status.phase is Phase.SUCCEEDED
    body = [
        f'<h1>{escaped(status.name)} <span class="{"good" if good else "bad"}">{status.phase.value}</span></h1>',
        f'<p class="quiet">{escaped(_facts(status))}</p>',
        *(_diagnosis(status, status.failure) if status.failure else ()),
        *_curves(history.points),
        *_events(history),
        *_ranks(status),
        *_result(status),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(status.name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _facts(status: RunStatus) -> str:
    facts = (
        f"job {status.job}",
        counted(status.world_size, "rank") if status.world_size else "",
        f"on {status.backend}",
        f"ran {duration(status.finished - status.started)}" if status.finished and status.started else "",
        counted(status.attempt, "restart") if status.attempt else "",
    )
    return ", ".join(fact for fact in facts if fact)


def _diagnosis(status: RunStatus, failure: Failure) -> Iterator[str]:
    yield f'<h2>Why it failed</h2><div class="card"><p class="bad">{escaped(end_sentence(status))}</p><table>'
    yield from (titled_row(title, lines) for title, lines in failure_rows(failure))
    yield "</table></div>"


def _curves(points: Sequence[ProgressPoint]) -> Iterator[str]:
    """Yields the HTML of a chart for each metric."""
    for chart in metric_charts(points):
        yield f'<h2>{escaped(chart.metric)} <span class="quiet">over {chart.over}</span></h2>'
        yield f'<div class="card scroll">{chart.svg}</div>'


def _events(history: ReportHistory) -> Iterator[str]:
    """Yields the HTML of a table with the run's events and the duration of each phase."""
    if not history.events:
        return
    yield '<h2>Events</h2><div class="scroll"><table><tr><th>time (UTC)</th><th>event</th><th>duration</th></tr>'
    first = history.FIRST_EVENTS if history.omitted else 0
    ends = [*_phase_ends(history.events[:first]), *_phase_ends(history.events[first:])]
    for number, ((at, record), end) in enumerate(zip(history.events, ends, strict=True)):
        if history.omitted and number == first:
            yield f'<tr><td></td><td class="quiet">{history.omitted} more events</td><td></td></tr>'
        lasted = "" if end is None or not isinstance(record, PhaseChanged) else duration(end - at)
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        yield f"<tr><td>{clock}</td>{text_cell(record.lines)}<td>{lasted}</td></tr>"
    yield "</table></div>"


def _phase_ends(events: Sequence[tuple[float, Record]]) -> list[float | None]:
    """Returns a list with one element for each event. The element is the time at which the phase of the event ends.

    A phase ends at the next event that reports a change of the phase or the end of the run. If no such event follows,
    the element is None.
    """
    ends: list[float | None] = []
    end: float | None = None
    for at, record in reversed(events):
        ends.append(end)
        if isinstance(record, PhaseChanged | RunEnded):
            end = at
    return ends[::-1]


def _ranks(status: RunStatus) -> Iterator[str]:
    if not status.ranks:
        return
    yield '<h2>Ranks</h2><div class="scroll"><table>'
    yield "<tr><th>source</th><th>state</th><th>ended</th><th>last line</th><th>pod</th><th>node</th></tr>"
    for row in status.ranks:
        end = ended(row.exit_code, row.signal)
        mark = ' class="bad"' if row.state == "Failed" else ""
        state = f"<td>{escaped(row.source)}</td><td{mark}>{escaped(row.state)}</td><td>{end}</td>"
        pod = f"<td>{escaped(row.pod)}</td><td>{escaped(row.node)}</td>"
        yield f'<tr>{state}<td class="text">{escaped(row.last_line[:200])}</td>{pod}</tr>'
    yield "</table></div>"


def _result(status: RunStatus) -> Iterator[str]:
    if status.result is not None:
        yield f'<h2>Result</h2><pre class="card">{escaped(json.dumps(status.result, indent=2))}</pre>'
