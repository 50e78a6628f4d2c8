"""Positions in a queue are read from Kueue's visibility API, and are part of a queued run's status."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.cluster.kueue.workload import read_kueue_workload, read_positions
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change, decode_event
from stepset.watch.state.reports import Reports

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
SUMMARY = {
    "kind": "PendingWorkloadsSummary",
    "apiVersion": "visibility.kueue.x-k8s.io/v1beta2",
    "metadata": {"creationTimestamp": None},
    "items": [
        {
            "metadata": {
                "name": f"jobset-{uid}-1a2b3",
                "namespace": "ml",
                "ownerReferences": [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "uid": uid}],
            },
            "priority": 0,
            "localQueueName": "team",
            "positionInClusterQueue": 5 + place,
            "positionInLocalQueue": place,
        }
        for place, uid in enumerate(("first", "second"))
    ],
}


def run(**conditions: str) -> RunObjects:
    """A suspended run whose Workload has these conditions."""
    objects = RunObjects("run", "second")
    spec = {"suspend": True, "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {}}}]}
    meta = {"name": "run", "uid": "second", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}
    objects.see(Change("ADDED", jobset))
    objects.see(workload(**conditions))
    return objects


def workload(verb: Any = "ADDED", **conditions: str) -> Change:
    return Change(
        verb,
        {
            "kind": "Workload",
            "metadata": {"name": "jobset-second", "uid": "w", "ownerReferences": [{"uid": "second"}]},
            "spec": {"queueName": "team"},
            "status": {"conditions": [{"type": name, "status": value} for name, value in conditions.items()]},
        },
    )


def test_positions_count_from_one_within_the_local_queue() -> None:
    assert read_positions(SUMMARY) == {"first": 1, "second": 2}


@given(JSON | st.fixed_dictionaries({"items": JSON}))
def test_any_response_is_read_without_an_error(summary: Any) -> None:
    assert all(position > 0 for position in read_positions(summary).values())


@given(st.lists(st.fixed_dictionaries({"positionInLocalQueue": JSON, "metadata": JSON}) | st.just(SUMMARY["items"][0])))
def test_an_invalid_item_does_not_affect_the_others(items: list[Any]) -> None:
    assert read_positions({"items": [*items, SUMMARY["items"][1]]})["second"] == 2


def test_a_queued_run_states_its_position() -> None:
    objects = run(QuotaReserved="False")
    objects.position = 2
    waiting = status_of(objects, Reports(), 0.0).waiting
    assert waiting is not None and (waiting.queue, waiting.position) == ("team", 2)


def test_an_admitted_run_has_no_position() -> None:
    objects = run(QuotaReserved="False")
    objects.position = 2
    objects.see(workload("MODIFIED", QuotaReserved="True", Admitted="True"))
    assert (objects.queued, objects.position) == (None, None)
    objects.see(workload("MODIFIED", QuotaReserved="False", Admitted="False"))
    assert objects.queued is not None and objects.position is None, "the position after an eviction is unknown"


def pod_set(count: Any, **requests: Any) -> dict[str, Any]:
    return {"count": count, "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": requests}}]}}}


def requested(*pod_sets: Any) -> dict[str, str]:
    spec = {"queueName": "team", "podSets": list(pod_sets)}
    return dict(read_kueue_workload({"metadata": {"uid": "w"}, "spec": spec}).requests)


def test_a_waiting_run_states_what_all_its_pods_request() -> None:
    nodes = pod_set(4, **{"cpu": "1500m", "memory": "16Gi", "nvidia.com/gpu": 8})
    assert requested(nodes, pod_set(1, cpu="500m")) == {"cpu": "6500m", "memory": "64Gi", "nvidia.com/gpu": "32"}
    objects = run(QuotaReserved="False")
    change = workload("MODIFIED", QuotaReserved="False")
    line = json.dumps(
        {"type": "MODIFIED", "object": {**change.object, "spec": {"queueName": "team", "podSets": [nodes]}}}
    )
    objects.see(Change("MODIFIED", decode_event(line.encode())["object"]))
    objects.position = 3
    trouble = status_of(objects, Reports(), 0.0).trouble
    assert trouble is not None and trouble.message == (
        "the run waits in queue team at position 3; it requests cpu 6, memory 64Gi, nvidia.com/gpu 32"
    )


@given(JSON)
def test_invalid_requests_are_ignored(value: Any) -> None:
    assert isinstance(requested(value), dict)
    assert isinstance(requested({"count": value, "template": {"spec": value}}), dict)
    assert isinstance(requested(pod_set(1, cpu=value)), dict)


def test_negative_requests_are_ignored() -> None:
    assert requested(pod_set(1, cpu="-1e99999999")) == requested(pod_set(-1, cpu="1")) == {}


def test_an_admitted_workload_requests_nothing_more() -> None:
    admitted = [{"type": "Admitted", "status": "True"}]
    data = {"spec": {"podSets": [pod_set(1, cpu="1")]}, "status": {"conditions": admitted}}
    assert read_kueue_workload(data).requests == {}
