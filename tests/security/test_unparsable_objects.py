"""Readers of foreign fields accept anything: no value ends a watch, a list or a status, or takes long."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import RANKS, RUN, VERDICT
from stepset.watch.bounded_json import parse_json
from stepset.watch.cluster.events import read_event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import UnreadableObjectError
from stepset.watch.cluster.pods import read_pod
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.verdict import parse_verdict, verdict_text
from stepset.watch.cluster.workload import read_ranks, read_workload
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from stepset.watch.state.termination_message import read_termination_message
from tests.fuzzing import FUZZED
from tests.watch.cluster.streams import NAMES, stream

TIMES = ("0001-01-01T00:00:00Z", "3058-10-26T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00")
HUGE = ("9" * 4301, "2147483647", "9" * 63, "-1", "1e308", "²", "", "[" * 5000, *TIMES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(HUGE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


@st.composite
def altered(draw: st.DrawFn) -> tuple[list[Change], int, dict[str, Any]]:
    """A recorded stream, and one of its objects in which some values are replaced by others."""
    changes = list(stream(draw(st.sampled_from(NAMES))))
    place = draw(st.integers(0, len(changes) - 1))
    found = json.loads(json.dumps(changes[place].object))
    for _ in range(draw(st.integers(1, 3))):
        node: Any = found
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(node[key], (dict, list)) or draw(st.integers(0, 4)) == 0:
                if key not in ("kind", "apiVersion"):
                    node[key] = draw(JSON)
                break
            node = node[key]
    return changes, place, found


@FUZZED
@given(altered())
def test_a_run_with_an_altered_object_has_a_state(case: tuple[list[Change], int, dict[str, Any]]) -> None:
    changes, place, found = case
    objects = RunObjects("run")
    for number, change in enumerate(changes):
        try:
            objects.see(Change(change.verb, found) if number == place else change)
        except UnreadableObjectError:
            assert number == place
    assert RunStatus.from_dict(json.loads(json.dumps(status_of(objects, Reports(), 2e9).to_dict())))


@pytest.mark.parametrize("field", ["creationTimestamp", "finishedAt", "startedAt"])
@pytest.mark.parametrize("at", TIMES)
def test_a_status_with_any_time_is_stored_and_read(field: str, at: str) -> None:
    objects = RunObjects("run")
    for change in stream("jobset_succeeds"):
        words = re.sub(rf'"{field}": "[^"]+"', f'"{field}": "{at}"', json.dumps(change.object))
        objects.see(Change(change.verb, json.loads(words)))
    status = status_of(objects, Reports(), 2e9)
    assert status.phase is Phase.SUCCEEDED
    assert parse_verdict(verdict_text(status))


@FUZZED
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), JSON))
def test_any_object_is_read(data: dict[str, Any]) -> None:
    read_pod(data, deleted=False)
    read_workload(data)
    read_event(data)


@FUZZED
@given(JSON.map(json.dumps) | st.text(), st.integers(-1, 3), st.booleans())
@example("[" * 100_000, 0, True)
@example('{"stepset": {"failed": {"rank": 1' + "0" * 400 + "}}}", 1, True)
def test_any_termination_message_is_read(words: str, code: int, agent: bool) -> None:
    read_termination_message(words, code, agent)


@FUZZED
@given(JSON.map(json.dumps) | st.text())
@example('{"node": [0, 3000000]}')
@example('{"node": [' + "9" * 4301 + ", 1]}")
def test_the_ranks_of_any_annotation_are_bounded(words: str) -> None:
    assert all(count <= 1024 for _, count in (read_ranks(words) or {}).values())


DONE = RunStatus("run", "run", "kubernetes", Phase.SUCCEEDED).to_dict()


@FUZZED
@given(st.sampled_from(sorted(DONE)), JSON)
@example("created", "abc")
@example("created", 1e308)
@example("created", float("nan"))
@example("ranks", [7])
@example("failure", {"kind": "UserError"})
def test_any_verdict_is_read_or_ignored(name: str, value: object) -> None:
    found = parse_verdict(json.dumps({**DONE, name: value}))
    assert found is None or json.dumps(found.to_dict())


def see_foreign_pod(attempt: str) -> tuple[RunStatus, RunStatus]:
    """Returns the status of a run before and after a pod with an attempt is seen that no controller has created."""
    objects = RunObjects("run")
    for change in stream("jobset_succeeds"):
        objects.see(change)
    before = status_of(objects, Reports(), 0.0)
    notes = {ATTEMPT: attempt, "batch.kubernetes.io/job-completion-index": attempt}
    objects.see(
        Change("ADDED", {"kind": "Pod", "metadata": {"uid": "x", "labels": {RUN: "run"}, "annotations": notes}})
    )
    return before, status_of(objects, Reports(), 0.0)


@pytest.mark.parametrize("attempt", HUGE)
def test_a_foreign_pod_with_any_attempt_does_not_change_the_state(attempt: str) -> None:
    before, after = see_foreign_pod(attempt)
    assert before == after


@pytest.mark.machine
@pytest.mark.parametrize("attempt", HUGE)
def test_a_foreign_pod_with_any_attempt_takes_no_time(attempt: str) -> None:
    began = time.process_time()
    see_foreign_pod(attempt)
    assert time.process_time() - began < 5


def test_an_invalid_annotation_of_the_workload_is_reported_once_and_ignored() -> None:
    (workload, *_) = [change.object for change in stream("jobset_succeeds") if change.object["kind"] == "JobSet"]
    notes = {RANKS: '{"node": [0, 3000000]}', VERDICT: "{}"}
    objects = RunObjects("run")
    objects.see(Change("ADDED", {**workload, "metadata": {**workload["metadata"], "annotations": notes}}))
    assert status_of(objects, Reports(), 0.0).notes == tuple(
        f"annotation {name} of JobSet run is invalid; it is ignored" for name in (RANKS, VERDICT)
    )


@pytest.mark.parametrize(
    "data",
    ['{"\\ud800": ["\\udfff", 1]}', '{"\ud800": ["\udfff", 1]}', b'{"\xed\xa0\x80": ["\xed\xbf\xbf", 1]}'],
    ids=["escaped", "of undecodable bytes", "encoded"],
)
def test_lone_surrogates_of_json_become_characters_that_every_encoding_has(data: str | bytes) -> None:
    assert json.dumps(parse_json(data), ensure_ascii=False).encode() == '{"\ufffd": ["\ufffd", 1]}'.encode()


@FUZZED
@given(JSON)
def test_json_without_surrogates_is_unchanged(value: object) -> None:
    text = json.dumps(value)
    assert repr(parse_json(text)) == repr(json.loads(text)) or "\\ud" in text
