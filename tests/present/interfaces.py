"""The sentences that each interface shows of a run, without the interface's prefixes."""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from stepset.cli.output.outcome import outcome
from stepset.cli.output.run_display import RunDisplay
from stepset.run_status import LogLine, Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.records import HangReported, held_up
from stepset_airflow.logs.task_log import TaskLog
from stepset_airflow.page.history import RunHistory
from stepset_kfp.outputs.report import report_html
from stepset_kfp.step.step_log import StepLog
from stepset_kfp.step.train import fail

Updates = Sequence[RunStatus | LogLine]
"""A run as a listener receives it."""
LONGEST = 500
"""Number of characters of a sentence that the page shows."""


def terminal(run: Updates) -> list[str]:
    """The messages of `stepset run` with its output in a file, then the diagnosis."""
    messages = io.BytesIO()
    with RunDisplay(io.BytesIO(), messages) as display:
        _feed(run, display)
    lines = messages.getvalue().decode().splitlines()
    last = _last(run)
    if last.phase.final:
        first, *block = outcome(last).splitlines()
        lines.append(first.partition("; result: ")[0])  # other interfaces return the result in other ways
        lines += [line for line in block if not line.startswith("  logs ")]  # the command that shows more
    shown = [line.removeprefix("stepset: ").removeprefix("note: ") for line in lines]
    assert len(shown) == sum(line.startswith("stepset: ") for line in lines) + sum(line[:2] == "  " for line in lines)
    return shown


def task_log(run: Updates) -> list[str]:
    """An Airflow task's log, then the rest of the exception that ends the task; the log contains its first line.

    Without the result, which other interfaces return in other ways.
    """
    log = _Lines()
    _feed([each for each in run if isinstance(each, RunStatus)], TaskLog(log))
    last = _last(run)
    if last.phase is Phase.SUCCEEDED and last.result is not None:
        assert log.texts[-1].startswith("result: ")
        return _split(log.texts[:-1])
    if not last.phase.final or last.phase is Phase.SUCCEEDED:
        return _split(log.texts)
    first, *rest = failure_text(last).splitlines()
    assert log.texts[-1] == first
    return [*_split(log.texts), *rest]


def step_log(run: Updates) -> list[str]:
    """A KFP step's log, with the error that ends the step if the run fails."""
    out, last = io.StringIO(), _last(run)
    with contextlib.redirect_stdout(out):
        _feed([each for each in run if isinstance(each, RunStatus)], StepLog())
        if last.phase.final and last.phase is not Phase.SUCCEEDED:
            with contextlib.suppress(SystemExit):
                fail(failure_text(last))
    lines = out.getvalue().splitlines()
    assert all(line.startswith("stepset: ") for line in lines)
    return [line.removeprefix("stepset: ") for line in lines]


def page(run: Updates) -> list[str]:
    """The events of Airflow's page, then the diagnosis as rows; a card shows the trouble while it lasts."""
    history = RunHistory({})
    for number, status in enumerate(each for each in run if isinstance(each, RunStatus)):
        history.record(status, float(number))
        card, held = history.document(float(number))["trouble"], held_up(status)
        if held is None:
            assert card is None
        else:
            if isinstance(held, HangReported):
                assert card["summary"] == held.lines[0]
                assert [row[0] for row in card["rows"]] == [title for title, _ in held.rows[1:-1]]
            else:
                assert f"{held.rows[0][0]}: {card['summary']}".rstrip(".") in held.text
            assert held.text.endswith(card["advice"])
    document = history.document(0.0)
    texts = [line for event in document["events"] for line in event["text"].split("\n")]
    if document["failure"] is not None:
        assert document["failure"]["headline"] == texts[-1]
        texts += _block(document["failure"]["rows"])
    return texts


def report(run: Updates) -> list[str]:
    """The events of KFP's report, then the diagnosis as rows."""
    log = StepLog()
    with contextlib.redirect_stdout(io.StringIO()):
        _feed([each for each in run if isinstance(each, RunStatus)], log)
    text = report_html(_last(run), log.history)
    found = re.findall(r'<td class="text">(?:<pre>)?([^<]*)(?:</pre>)?</td><td>', _part(text, "Events"))
    events = [line for each in found for line in each.split("\n")]
    rows = re.findall(r"<tr><th>([^<]*)</th><td class=.text.>(?:<pre>)?([^<]*)", _part(text, "Why it failed"))
    return [html.unescape(each) for each in events] + _block(
        (html.unescape(title), html.unescape(lines).split("\n")) for title, lines in rows
    )


def terminal_lines(lines: Sequence[LogLine]) -> list[str]:
    """The ranks' lines as written by `stepset run`."""
    out = io.BytesIO()
    with RunDisplay(out, io.BytesIO()) as display:
        _feed(lines, display)
    return out.getvalue().decode().splitlines()


def task_log_lines(lines: Sequence[LogLine], ranks: frozenset[int] | None) -> list[str]:
    """The ranks' lines in an Airflow task's log."""
    log = _Lines()
    _feed(lines, TaskLog(log, ranks))
    return log.texts


def step_log_lines(lines: Sequence[LogLine], ranks: frozenset[int] | None) -> list[str]:
    """The ranks' lines in a KFP step's log."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        _feed(lines, StepLog(ranks))
    return out.getvalue().splitlines()


def everything(run: Updates, interface: str, ranks: frozenset[int] | None = None) -> list[str]:
    """All lines of an interface's log: lines of ranks, and messages."""
    if interface == "task log":
        log = _Lines()
        _feed(run, TaskLog(log, ranks))
        return log.texts
    if interface == "step log":
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            _feed(run, StepLog(ranks))
        return text.getvalue().splitlines()
    out = io.BytesIO()
    with RunDisplay(out, out) as display:
        _feed(run, display)
    return out.getvalue().decode().splitlines()


WITH_PROGRESS: dict[str, Callable[[Updates], list[str]]] = {
    "terminal": terminal,
    "task log": task_log,
    "step log": step_log,
}
WITHOUT: dict[str, Callable[[Updates], list[str]]] = {"page": page, "report": report}
"""The interfaces that show progress as curves."""


class _Lines:
    """A task's logger that records its messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def info(self, event: str) -> None:
        self.texts.append(event)

    warning = exception = info


def _feed(run: Updates, listener: Any) -> None:
    for each in run:
        if isinstance(each, LogLine):
            listener.on_line(each)
        else:
            listener.on_status(each)


def _last(run: Updates) -> RunStatus:
    return [each for each in run if isinstance(each, RunStatus)][-1]


def _split(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in text.split("\n")]


def _part(text: str, heading: str) -> str:
    """The section of a page with a heading."""
    return text.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]


def _block(rows: Any) -> list[str]:
    """Formats the rows of a diagnosis as other interfaces do."""
    return [
        f"{f'  {title:<14}' if not number else ' ' * 16}{line}"
        for title, lines in rows
        for number, line in enumerate(lines)
    ]
