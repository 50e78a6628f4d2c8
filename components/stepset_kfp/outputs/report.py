"""The report of a run: one HTML file with its ranks, phases, curves and diagnosis. Pure.

The page has no scripts and loads no resources, because KFP embeds it in its own page. The training's output is escaped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

from stepset.run_status import Failure, Phase, RunStatus
from stepset.watch.present.failure_report import ended, failure_rows
from stepset.watch.present.records import PhaseChanged, Record, RunEnded
from stepset.watch.present.sentences import counted, duration, end_sentence
from stepset_kfp.outputs.charts import line_chart
from stepset_kfp.outputs.escaped import escaped
from stepset_kfp.outputs.history import Point, ReportHistory

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
    """Returns the page for a run's last status and its history."""
    good = status.phase is Phase.SUCCEEDED
    body = [
        f'<h1>{escaped(status.name)} <span class="{"good" if good else "bad"}">{status.phase.value}</span></h1>',
        f'<p class="quiet">{escaped(_facts(status))}</p>',
        *(_diagnosis(status, status.failure) if status.failure else ()),
        *_curves(history.points),
        *_events(history.events),
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
    for title, lines in failure_rows(failure):
        text = escaped("\n".join(lines))
        shown = f"<pre>{text}</pre>" if len(lines) > 1 else text
        yield f'<tr><th>{escaped(title)}</th><td class="text">{shown}</td></tr>'
    yield "</table></div>"


def _curves(points: Sequence[Point]) -> Iterator[str]:
    """Yields a chart for each metric, the loss first; over steps if every report has a step, else over seconds."""
    names = dict.fromkeys(name for point in points for name in point.progress.metrics)
    for name in sorted(names, key=lambda name: ("loss" not in name.lower(), list(names).index(name))):
        stepped = all(point.progress.step is not None for point in points)
        start = points[0].at
        chart = line_chart(
            [
                (float(point.progress.step or 0) if stepped else point.at - start, point.progress.metrics[name])
                for point in points
                if name in point.progress.metrics
            ],
            f"{name} over {'steps' if stepped else 'seconds'}",
        )
        if chart:
            over = "steps" if stepped else "seconds"
            yield f'<h2>{escaped(name)} <span class="quiet">over {over}</span></h2>'
            yield f'<div class="card scroll">{chart}</div>'


def _events(events: Sequence[tuple[float, Record]]) -> Iterator[str]:
    """Yields a table of the run's events, with the duration of each phase."""
    if not events:
        return
    yield '<h2>Events</h2><div class="scroll"><table><tr><th>time (UTC)</th><th>event</th><th>duration</th></tr>'
    for index, (at, record) in enumerate(events):
        ends = (end for end, later in events[index + 1 :] if isinstance(later, PhaseChanged | RunEnded))
        end = next(ends, None) if isinstance(record, PhaseChanged) else None
        lasted = "" if end is None else duration(end - at)
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        yield f'<tr><td>{clock}</td><td class="text">{escaped(record.text)}</td><td>{lasted}</td></tr>'
    yield "</table></div>"


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
