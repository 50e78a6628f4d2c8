"""Which objects belong to a workload, by the uids of their owners."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.cluster.ownership import owned
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


def an_object(uid: str, *owners: str, about: str = "") -> dict[str, Any]:
    metadata = {"uid": uid, "ownerReferences": [{"uid": owner, "controller": True} for owner in owners]}
    return {"metadata": metadata, **({"involvedObject": {"uid": about}} if about else {})}


def uids(objects: list[Any]) -> list[str]:
    return [each["metadata"]["uid"] for each in objects]


def test_objects_belong_to_a_workload_directly_or_through_others() -> None:
    pod, job, workload = an_object("pod", "job"), an_object("job", "workload"), an_object("workload")
    event, other = an_object("event", about="pod"), an_object("other pod", "other job")
    found = uids(owned([event, pod, other, job, workload], "workload"))
    assert found == ["workload", "job", "pod", "event"]


def test_an_owner_that_does_not_control_the_object_does_not_count() -> None:
    pod = an_object("pod", "workload")
    for owner in ({"uid": "workload"}, {"uid": "workload", "controller": "true"}):
        pod["metadata"]["ownerReferences"] = [owner]
        assert owned([pod], "workload") == []


def test_objects_without_uids_belong_to_none() -> None:
    assert owned([{}, {"metadata": {"uid": ""}}, an_object("", "")], "workload") == []


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


@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "involvedObject", "kind"]), JSON)))
def test_anything_is_read(objects: list[dict[str, Any]]) -> None:
    assert owned(objects, "workload") is not None
