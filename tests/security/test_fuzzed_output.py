"""Whatever a training prints, or writes as its termination message, its run has a state, and other lines are shown."""

from __future__ import annotations

import json
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.verdict import LIMIT, parse_verdict, verdict_text
from stepset.watch.lines import Joiner, Splitter, log_lines
from stepset.watch.list_watch import Change
from stepset.watch.reported import merge_report, parse_report
from stepset.watch.state.reports import Reports
from tests.fuzzing import FUZZED
from tests.watch.cluster.streams import Object, stream

NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63, 10**400, 1e308, -1e308, 0.5, float("nan"), float("inf"), True])
WORDS = st.text(max_size=8) | st.sampled_from(
    ["rank 0", "UserError", "Lost", "\ud800", "\u202e", "\x1b]52;c;x\a", "9" * 4301]
)
SCALARS = st.none() | NUMBERS | WORDS
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
NAMES = [
    "rank",
    "exit_code",
    "signal",
    "at",
    "kind",
    "error",
    "tail",
    "missing",
    "result",
    "local_rank",
    "size",
    "text",
]
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["started", "exited", "failed", "waiting", "result", "peers", ""]) | JSON},
    optional=dict.fromkeys(NAMES, JSON),
)
PROGRESS = st.fixed_dictionaries(
    {"stepset": st.fixed_dictionaries({}, optional=dict.fromkeys(["step", "progress", "metrics"], JSON)) | JSON}
)
DEEP = '{"stepset": ' + "[" * 2000
HUGE = '{"stepset": {"metrics": {"n": 1' + "0" * 400 + "}}}"


def dumped(data: object) -> str:
    """JSON as another program may write it: with numbers that Python cannot convert to text, too."""
    return json.dumps(data)


HEADS = st.sampled_from(
    ["[rank 0] ", "[rank 0+] ", "[node 0] ", "[stepset] ", "[stepset 3] ", "", "[rank " + "9" * 4301 + "] "]
)
LINES = st.tuples(
    HEADS, EVENTS.map(dumped) | PROGRESS.map(dumped) | st.text(max_size=20) | st.just(DEEP) | st.just(HUGE)
)


@cache
def _running() -> tuple[Change, ...]:
    objects, changes = RunObjects("run"), list[Change]()
    for change in stream("jobset_succeeds"):
        objects.see(change)
        changes.append(change)
        found = status_of(objects, Reports(), 2e9)
        if found.phase is Phase.RUNNING and all(row.state == "Running" for row in found.ranks):
            return tuple(changes)
    raise AssertionError


def seen(changes: tuple[Change, ...]) -> RunObjects:
    objects = RunObjects("run")
    for change in changes:
        objects.see(change)
    return objects


@FUZZED
@given(st.lists(LINES, max_size=6), st.integers(1, 50))
@example(
    [("[rank 0] ", HUGE), ("[rank 0] ", DEEP), ("[stepset] ", '{"event": "failed", "rank": 1' + "0" * 400 + "}")], 50
)
def test_any_output_of_a_pod_leaves_its_run_running(lines: list[tuple[str, str]], size: int) -> None:
    objects, reports, splitter, joiner = seen(_running()), Reports(), Splitter("node 0"), Joiner()
    (pod, *_) = objects.pods
    printed = (
        "".join(f"{head}{text}\n" for head, text in lines).encode("utf-8", "replace") + b"[rank 1] the next line\n"
    )
    shown = []
    for batch in (*(splitter.feed(printed[at : at + size]) for at in range(0, len(printed), size)), splitter.finish()):
        reports.see(pod.uid, batch)
        shown += log_lines(joiner.join(batch.lines))
    status = status_of(objects, reports, 2e9)
    json.dumps(status.to_dict(), allow_nan=False)
    assert status.phase is Phase.RUNNING
    assert any(line.source == "rank 1" and line.text.endswith("the next line") for line in shown)


@FUZZED
@given(PROGRESS.map(dumped) | JSON.map(dumped) | st.text())
@example(HUGE)
@example(DEEP)
def test_any_line_is_progress_or_not(line: str) -> None:
    report = parse_report(line.encode("utf-8", "replace"))
    if report is not None:
        found = merge_report(None, report)
        json.dumps([found.step, found.progress, found.metrics], allow_nan=False)


FAILED = st.fixed_dictionaries({"stepset": st.fixed_dictionaries({"failed": EVENTS | JSON})})
MESSAGES = st.one_of(FAILED.map(dumped), JSON.map(dumped), LINES.map("".join), st.text())


@FUZZED
@given(MESSAGES, st.integers(-1, 2**40), st.text(max_size=8))
@example("[" * 100_000, 1, "Error")
def test_a_run_with_any_termination_message_has_an_end(message: str, code: int, reason: str) -> None:
    objects = seen(tuple(stream("jobset_fails")))
    pod = next(change.object for change in reversed(stream("jobset_fails")) if change.object["kind"] == "Pod")
    objects.see(Change("MODIFIED", _ended(dict(pod), message, code, reason)))
    status = status_of(objects, Reports(), 2e9)
    json.dumps(status.to_dict())
    assert status.phase is Phase.FAILED
    text = verdict_text(status)
    assert len(text) <= LIMIT and parse_verdict(text) is not None


def _ended(pod: Object, message: str, code: int, reason: str) -> Object:
    ended = {"exitCode": code, "message": message, "reason": reason, "finishedAt": "2026-11-21T04:00:00Z"}
    rows = [
        {**row, "state": {"terminated": ended}} for row in pod["status"].get("containerStatuses", [{"name": "node"}])
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": rows}}


@FUZZED
@given(JSON)
def test_any_result_and_note_can_be_stored_in_a_verdict(result: object) -> None:
    status = RunStatus("run", "job", "kubernetes", Phase.SUCCEEDED, result=result, notes=(str(result),))
    text = verdict_text(status)
    assert len(text) <= LIMIT
    assert parse_verdict(text) is not None
