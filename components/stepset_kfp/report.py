"""The report of a run: one HTML file with its ranks, phases, curves and diagnosis. Pure; called by step.py.

Nothing in it comes from elsewhere and nothing in it runs: KFP shows it inside a page of its own. Whatever the training
printed is text there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from html import escape

from stepset.watch.state import Failure, Phase, RunStatus
from stepset_kfp.charts import line_chart
from stepset_kfp.step_log import History, Point

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


def report_html(status: RunStatus, history: History) -> str:
    """The page.

    Args:
        status: the run's last.
        history: what was seen on the way.
    """
    good = status.phase is Phase.SUCCEEDED
    body = [
        f'<h1>{escape(status.name)} <span class="{"good" if good else "bad"}">{status.phase.value}</span></h1>',
        f'<p class="quiet">{escape(_facts(status))}</p>',
        *(_diagnosis(status.failure) if status.failure else ()),
        *_curves(history.points),
        *_phases(history.phases),
        *_ranks(status),
        *_result(status),
        *(f'<p class="quiet">{escape(note)}</p>' for note in status.notes),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(status.name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _facts(status: RunStatus) -> str:
    took = f"{status.finished - status.started:.0f} s" if status.finished and status.started else ""
    facts = (
        f"job {status.job}",
        f"{status.world_size} ranks" if status.world_size else "",
        f"on {status.backend}",
        f"ran {took}" if took else "",
        f"{status.attempt} restart{'s' if status.attempt > 1 else ''}" if status.attempt else "",
    )
    return ", ".join(fact for fact in facts if fact)


def _diagnosis(failure: Failure) -> Iterator[str]:
    yield '<h2>Why it failed</h2><div class="card">'
    yield f'<p><b class="bad">{failure.kind.value}</b>: {escape(failure.message)}</p><p>{escape(failure.advice)}</p>'
    who = (
        f"rank {failure.rank}" if failure.rank is not None else "",
        f"pod {failure.pod}" if failure.pod else "",
        f"node {failure.node}" if failure.node else "",
        f"exit code {failure.exit_code}" if failure.exit_code is not None else "",
        f"signal {failure.signal}" if failure.signal is not None else "",
    )
    if any(who):
        yield f'<p class="quiet">first to fail: {escape(", ".join(part for part in who if part))}</p>'
    for event in failure.events:
        yield f'<p class="quiet">event: {escape(event)}</p>'
    if failure.aftermath:
        yield f'<p class="quiet">ended because of it: {escape(", ".join(failure.aftermath))}</p>'
    if failure.tail:
        yield f"<pre>{escape(chr(10).join(failure.tail))}</pre>"
    yield "</div>"


def _curves(points: Sequence[Point]) -> Iterator[str]:
    """A chart for each metric the training reported, the loss first; over steps where it told them."""
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
            yield f'<h2>{escape(name)} <span class="quiet">over {over}</span></h2>'
            yield f'<div class="card scroll">{chart}</div>'


def _phases(phases: Sequence[tuple[float, str]]) -> Iterator[str]:
    if not phases:
        return
    yield '<h2>Phases</h2><div class="scroll"><table><tr><th>began (UTC)</th><th>phase</th><th>for</th></tr>'
    for (began, name), after in zip(phases, [*phases[1:], None], strict=True):
        lasted = f"{after[0] - began:.1f} s" if after else ""
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began))
        yield f"<tr><td>{clock}</td><td>{escape(name)}</td><td>{lasted}</td></tr>"
    yield "</table></div>"


def _ranks(status: RunStatus) -> Iterator[str]:
    if not status.ranks:
        return
    yield '<h2>Ranks</h2><div class="scroll"><table>'
    yield "<tr><th>who</th><th>state</th><th>end</th><th>last line</th><th>pod</th><th>node</th></tr>"
    for row in status.ranks:
        end = f"signal {row.signal}" if row.signal is not None else "" if row.exit_code is None else str(row.exit_code)
        mark = ' class="bad"' if row.state == "Failed" else ""
        who = f"<td>{escape(row.source)}</td><td{mark}>{escape(row.state)}</td><td>{end}</td>"
        where = f"<td>{escape(row.pod)}</td><td>{escape(row.node)}</td>"
        yield f'<tr>{who}<td class="text">{escape(row.last_line[:200])}</td>{where}</tr>'
    yield "</table></div>"


def _result(status: RunStatus) -> Iterator[str]:
    if status.result is not None:
        yield f'<h2>Result</h2><pre class="card">{escape(json.dumps(status.result, indent=2))}</pre>'
