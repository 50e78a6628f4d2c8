"""The report: one page without other resources, in which the training's output is escaped."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from stepset.html.charts import line_chart
from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, ProgressPoint, RankStatus, RunStatus
from stepset.watch.present.records import Note, PhaseChanged
from stepset_kfp.outputs.history import ReportHistory
from stepset_kfp.outputs.report import report_html
from stepset_kfp.step.step_log import StepLog, log_lines

STATUS = RunStatus(
    "digits-1",
    "digits",
    "kubernetes",
    Phase.FAILED,
    world_size=2,
    ranks=(
        RankStatus("rank 0", 0, "digits-1-node-0-0", "node-a", "Stopped", last_line="<script>alert(1)</script>"),
        RankStatus("rank 1", 1, "digits-1-node-0-1", "node-b", "Failed", exit_code=1),
    ),
    failure=Failure(
        FailureKind.USER_ERROR,
        "rank 1 failed: ValueError: bad",
        "Fix the code.",
        rank=1,
        pod="digits-1-node-0-1",
        node="node-b",
        exit_code=1,
        tail=("Traceback", "ValueError: bad"),
        events=("Warning BackOff",),
        aftermath=("rank 0",),
    ),
)


def history() -> ReportHistory:
    found = ReportHistory([(0.0, PhaseChanged("run digits-1: Pending (Starting)")), (2.0, Note("few cores"))])
    found.events.append((3.0, PhaseChanged("run digits-1: Running")))
    found.points = [
        ProgressPoint(float(step), Progress(step, step / 4, {"accuracy": 0.2 * step, "loss": 1 / step}))
        for step in range(1, 5)
    ]
    return found


class Page(HTMLParser):
    """The elements, links and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "action", "data")]
        self.links += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


def test_the_page_loads_no_resources_and_runs_no_scripts() -> None:
    text = report_html(STATUS, history())
    page = read(text)
    assert page.links == [] and not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not re.search(r"url\(|@import", text)
    assert "<script>alert(1)</script>" in page.text, "a rank's output is shown as text"


def test_every_colour_has_a_value_for_the_dark_scheme() -> None:
    text = report_html(STATUS, history())
    assert "color-scheme: light dark" in text
    dark = re.search(r"prefers-color-scheme: dark\) \{ :root \{(.*?)\}", text, re.S)
    used = set(re.findall(r"var\((--\w+)\)", text))
    assert dark and used == set(re.findall(r"(--\w+):", dark[1])), "the colours used, and those of the dark scheme"


def test_it_shows_ranks_phases_curves_and_the_first_failure() -> None:
    page = read(report_html(STATUS, history()))
    for words in (
        "rank 1",
        "node-b",
        "Pending (Starting)",
        "3 s",
        "few cores",
        "Fix the code.",
        "Warning BackOff",
        "first failure",
    ):
        assert words in page.text, words
    assert page.tags.count("svg") == 2
    assert page.text.index("loss") < page.text.index("accuracy"), "the loss comes first"


def test_a_chart_needs_two_finite_points() -> None:
    assert line_chart([(1, 2)], "loss") == ""
    assert line_chart([(1, float("nan")), (2, 1.0)], "loss") == ""
    assert "nan" not in line_chart([(1, 1.0), (2, float("inf")), (3, 2.0)], "loss")
    assert "<polyline" in line_chart([(1, 5.0), (2, 5.0)], "a flat one")


def test_ticks_of_steps_are_whole_and_the_axis_of_a_flat_curve_has_its_magnitude() -> None:
    chart = line_chart([(1, 1e-4), (12, 1e-4), (60, 1e-4)], "lr")
    ticks = re.findall(r">([^<>]+)</text>", chart)
    assert ticks == ["0.00006", "0.00008", "0.0001", "0.00012", "0.00014", "10", "20", "30", "40", "50", "60"]


def test_a_restarted_training_starts_another_curve() -> None:
    chart = line_chart([(1, 5.0), (2, 4.0), (3, 3.0), (2, 4.5), (2.5, 4.0)], "loss")
    curves = [points.split() for points in re.findall(r'<polyline class="curve" points="(.*?)"', chart)]
    assert [len(points) for points in curves] == [3, 2]
    across = [float(point.partition(",")[0]) for points in curves for point in points]
    assert min(across) > 0 and max(across) <= 720, "all points are inside the chart"


def test_the_page_of_a_long_training_is_small() -> None:
    long = ReportHistory()
    for number in range(10_000):
        long.record(float(number), PhaseChanged(f"run digits-1: change {number}"))
    assert len(long.events) == ReportHistory.EVENTS
    page = report_html(STATUS, long)
    assert "change 99<" in page and "change 100<" not in page and "change 9999<" in page
    assert "9500 more events" in page
    assert len(report_html(STATUS, long)) < 200_000


def test_the_log_shows_selected_ranks_and_each_phase_and_trouble_once(capsys) -> None:
    log = StepLog(frozenset({0}))
    log.on_line(LogLine("rank 0", "mine"))
    log.on_line(LogLine("rank 1", "not mine"))
    log.on_line(LogLine("launcher", "of all"))
    trouble = Failure(FailureKind.UNSCHEDULABLE, "no node has 8 GPUs.", "Request fewer.")
    for _ in range(2):
        log.on_status(STATUS.with_(phase=Phase.PENDING, reason="Unschedulable", failure=None, trouble=trouble))
    assert capsys.readouterr().out.splitlines() == [
        "[rank 0] mine",
        "[launcher] of all",
        "stepset: run digits-1: Pending (Unschedulable), 2 ranks",
        "stepset: trouble: Unschedulable: no node has 8 GPUs. Request fewer.",
    ]


def test_the_result_is_shown() -> None:
    status = STATUS.with_(phase=Phase.SUCCEEDED, failure=None, result={"accuracy": 0.97})
    page = read(report_html(status, ReportHistory()))
    assert json.dumps({"accuracy": 0.97}, indent=2) in page.text


HOSTILE = "bad\x1b]52;c;cm0gLXJm\x07\x1b[2J\u202egnp"


def test_the_page_and_the_log_contain_neither_control_sequences_nor_bidirectional_overrides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = StepLog()
    log.on_line(LogLine("rank 0", f"\x1b[31mred {HOSTILE}"))
    failure = Failure(FailureKind.USER_ERROR, HOSTILE, "Fix it.", error=HOSTILE, tail=(HOSTILE,))
    rows = (RankStatus("rank 0", 0, HOSTILE, HOSTILE, "Failed", last_line=HOSTILE),)
    points = tuple(ProgressPoint(step, Progress(step, 0.5, {HOSTILE: step})) for step in (1, 2))
    log.on_status(RunStatus("digits-1", "digits", "local", Phase.RUNNING, progress=points[-1].progress, points=points))
    status = RunStatus(
        HOSTILE, HOSTILE, "local", Phase.FAILED, ranks=rows, failure=failure, notes=(HOSTILE,), result=HOSTILE
    )
    log.on_status(status)
    log_lines(*f"{HOSTILE}\nsecond".splitlines())
    page, printed = report_html(status, log.history), capsys.readouterr().out
    assert page.count("\\u202egnp") > 8
    assert "[rank 0] \x1b[31mred bad\\u202egnp\x1b[0m\n" in printed
    for text in (page, re.sub("\x1b\\[[0-9]*m", "", printed)):
        assert all(line.isprintable() for line in text.split("\n"))
