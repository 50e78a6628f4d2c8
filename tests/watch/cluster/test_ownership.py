"""Which objects belong to a workload, by the uids of their owners."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.cluster.ownership import owner_of
from stepset.watch.cluster.planned import is_planned
from stepset.watch.cluster.pods import read_pod
from stepset.watch.cluster.workload import read_workload

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uid", "ownerReferences", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def an_object(kind: str, *owners: object) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"ownerReferences": list(owners)}}


def test_the_owner_of_an_object_is_its_controller() -> None:
    assert owner_of(an_object("Pod", {"uid": "other"}, {"uid": "job", "controller": True})) == "job"


def test_the_owner_of_an_event_is_the_object_that_it_is_about() -> None:
    assert owner_of({"kind": "Event", "metadata": {}, "involvedObject": {"uid": "pod"}}) == "pod"


def test_an_owner_that_does_not_control_the_object_does_not_count_except_for_workloads_of_kueue() -> None:
    for owner in ({"uid": "workload"}, {"uid": "workload", "controller": "true"}):
        assert owner_of(an_object("Pod", owner)) == ""
        assert owner_of(an_object("Workload", owner)) == "workload"


def test_an_object_with_several_controllers_has_no_owner() -> None:
    assert owner_of(an_object("Pod", *({"uid": uid, "controller": True} for uid in ("one", "two")))) == ""


@given(st.sampled_from(["run", "{", "{0}", "{index.x}", "%s"]), st.sampled_from(["StatefulSet", "Job"]))
def test_the_name_of_a_planned_pod_contains_the_name_of_its_workload_unchanged(name: str, kind: str) -> None:
    group = "apps" if kind == "StatefulSet" else "batch.volcano.sh"
    spec = {"replicas": 2, "tasks": [{"name": "node", "replicas": 2}]}
    workload = read_workload({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    assert workload is not None
    prefix = name if kind == "StatefulSet" else f"{name}-node"
    index = {"apps.kubernetes.io/pod-index": "1"}
    for pod, planned in ((f"{prefix}-1", True), (f"{prefix}-0", False), ("run-node-x-1", False)):
        assert is_planned(workload, read_pod({"metadata": {"name": pod, "labels": index}}, False)) is planned


@given(
    st.dictionaries(st.sampled_from(["metadata", "involvedObject"]), JSON), st.sampled_from(["Event", "Workload", 1])
)
def test_anything_is_read(data: dict[str, Any], kind: object) -> None:
    assert isinstance(owner_of({**data, "kind": kind}), str)
