"""A run has a valid status after any prefix of a recorded stream, and for any order of the kinds' streams."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import NAMES, Object, final, left, seen, statuses, stream

SECRET = "a-secret-token"
REASONS = ("", "Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost")


@pytest.mark.parametrize("name", NAMES)
class TestEveryPrefixOfAStream:
    @pytest.mark.parametrize("now", [0.0, 4e9], ids=["early", "late"])
    def test_has_a_status_that_is_equal_after_json(self, name: str, now: float) -> None:
        for status in statuses(name, now):
            assert status.reason in ((status.failure.kind.value,) if status.failure is not None else REASONS)
            assert RunStatus.from_dict(json.loads(json.dumps(status.to_dict()))) == status

    def test_has_a_failure_exactly_if_the_phase_is_failed_or_lost(self, name: str) -> None:
        for status in statuses(name):
            assert (status.failure is not None) == (status.phase in (Phase.FAILED, Phase.LOST))
            assert status.trouble is None or not status.phase.final
            assert (status.finished is not None) == status.phase.final

    def test_never_leaves_a_final_phase(self, name: str) -> None:
        over = False
        for status in statuses(name):
            assert status.phase.final or not over
            over = status.phase.final

    def test_has_one_row_for_each_rank(self, name: str) -> None:
        for status in statuses(name):
            sources = [row.source for row in status.ranks]
            assert len(sources) == len(set(sources))
            if status.world_size is not None:
                ranks = [row.rank for row in status.ranks if row.rank is not None]
                assert ranks == sorted(ranks) and all(0 <= rank < status.world_size for rank in ranks)

    def test_contains_no_values_of_environment_variables(self, name: str) -> None:
        objects = seen(_with_secret(change) for change in stream(name))
        assert SECRET not in json.dumps(status_of(objects, Reports(), 0.0).to_dict())


def _with_secret(change: Change) -> Change:
    def marked(node: object) -> object:
        if isinstance(node, dict):
            spec = {key: marked(value) for key, value in node.items()}
            if isinstance(spec.get("containers"), list):
                row = {"name": "HF_TOKEN", "value": SECRET}
                spec["containers"] = [{**each, "env": [row]} for each in spec["containers"]]
            return spec
        return [marked(each) for each in node] if isinstance(node, list) else node

    changed = marked(change.object)
    assert isinstance(changed, dict)
    return Change(change.verb, changed)


def _essence(status: RunStatus) -> tuple[object, ...]:
    failure = status.failure
    rows = tuple((row.source, row.pod, row.state) for row in status.ranks)
    why = None if failure is None else (failure.kind, failure.message, failure.pod, failure.rank, failure.aftermath)
    return status.phase, status.reason, status.attempt, status.result, rows, why


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_final_status_does_not_depend_on_the_order_of_the_kinds_streams(name: str, seed: int) -> None:
    by_kind: dict[str, list[Change]] = {}
    for change in stream(name):
        by_kind.setdefault(change.object["kind"], []).append(change)
    rng, shuffled = random.Random(seed), []
    while by_kind:
        kind = rng.choice(sorted(by_kind))
        shuffled.append(by_kind[kind].pop(0))
        if not by_kind[kind]:
            del by_kind[kind]
    status = status_of(seen(shuffled), Reports(), 0.0)
    assert _essence(status) == _essence(final(name))


def _ended_with_pods(name: str) -> bool:
    """Whether a scenario's run ended, and its workload and the pod that failed, if any, still exist."""
    status = final(name)
    kept = {change.object["metadata"]["name"] for change in left(name)}
    if not status.phase.final or "run" not in kept:
        return False
    return status.failure is None or not status.failure.pod or status.failure.pod in kept


@pytest.mark.parametrize("name", [name for name in NAMES if _ended_with_pods(name)])
def test_a_list_after_the_end_shows_the_same_end(name: str) -> None:
    watched, late = final(name), status_of(seen(left(name)), Reports(), 0.0)
    assert (late.phase, late.result, late.attempt, late.finished) == (
        watched.phase,
        watched.result,
        watched.attempt,
        watched.finished,
    )
    if watched.failure is not None:
        assert late.failure is not None
        ends = [
            (failure.kind, failure.message, failure.rank, failure.pod, failure.tail)
            for failure in (watched.failure, late.failure)
        ]
        assert ends[0] == ends[1]


def test_see_returns_false_for_a_change_without_new_information() -> None:
    objects = seen(stream("jobset_fails"))
    for change in stream("jobset_fails")[::-1]:
        if change.object["kind"] == "Pod" and change.verb == "DELETED":
            assert not objects.see(change)
    pods: list[Object] = [dict(c.object) for c in stream("jobset_succeeds") if c.object["kind"] == "Pod"]
    objects = seen(stream("jobset_succeeds"))
    newer = {**pods[-1], "metadata": {**pods[-1]["metadata"], "resourceVersion": "99"}}
    assert not objects.see(Change("MODIFIED", newer))
