"""Kueue's messages state whether a run can be admitted without a change. They were received from Kueue 0.18.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.cluster.kueue.workload import read_kueue_workload
from stepset.watch.present.queue_remedies import change_needed

POD_SET = "couldn't assign flavors to pod set node: "
EXCEEDS = (
    "insufficient quota for cpu in flavor f, previously considered podsets requests (0) + current podset request (4)"
    " > maximum capacity (1)"
)
BUSY = "insufficient unused quota for cpu in flavor f, 500m more needed"
TAINT = "untolerated taint {spot true NoSchedule <nil>} in flavor tainted"


def reserved(message: str, reason: str = "Pending", **status: object) -> dict[str, object]:
    """A Workload whose quota is not reserved for this reason."""
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    return {"metadata": {"name": "w", "uid": "w"}, "spec": {}, "status": {"conditions": [condition]}, **status}


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("LocalQueue nope doesn't exist", "create LocalQueue nope, or use a queue that"),
        ("LocalQueue q is terminating or missing", "create LocalQueue q, or use a queue that"),
        ("LocalQueue q is inactive", "`kubectl describe localqueue q`"),
        ("ClusterQueue gpus doesn't exist", "have an administrator create ClusterQueue gpus"),
        ("ClusterQueue gpus is inactive", "`kubectl describe clusterqueue gpus` states why"),
        ("ClusterQueue gpus is stopped", "`kubectl describe clusterqueue gpus` states why"),
        ("KueueDRAIntegration feature does not support use of resource claims", "administrator check the LocalQueue"),
    ],
)
def test_a_queue_that_is_missing_or_stopped_needs_a_change(message: str, change: str) -> None:
    assert change in change_needed("Inadmissible", message)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("Workload namespace doesn't match ClusterQueue selector", "namespaceSelector"),
        (
            'resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests'
            " must not exceed its limits",
            "change resources_per_node, or have the namespace's LimitRange changed",
        ),
        (
            "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: Invalid"
            ' value: ["cpu"]: must not be above the limitRange',
            "LimitRange",
        ),
        (f"{POD_SET}resource example.com/gpu unavailable in ClusterQueue", "no quota for example.com/gpu"),
        (f"{POD_SET}{EXCEEDS}", "request less (resources_per_node, num_nodes), or have the quota raised"),
        (
            f"{POD_SET}insufficient quota for cpu in flavor f, request > maximum capacity (4 > 1)",
            "request less (resources_per_node, num_nodes), or have the quota raised",
        ),
        (f"{POD_SET}{TAINT}", "scheduling.tolerations"),
        (f"{POD_SET}flavor f doesn't match node affinity", "node_selector"),
        (f"{POD_SET}flavor f not found", "ResourceFlavor"),
        (f'{POD_SET}Flavor "f" does not contain the requested level', "topology"),
        (f"{POD_SET}{BUSY}; couldn't assign flavors to pod set data: {EXCEEDS}", "request less"),
        # Kueue reports every resource that it has examined for a flavor, in any order.
        (f"{POD_SET}{EXCEEDS}, {BUSY.replace('cpu', 'memory')}", "request less"),
    ],
)
def test_a_request_that_no_flavor_can_take_needs_a_change(message: str, change: str) -> None:
    assert change in change_needed("Pending", message)


def test_each_flavor_may_need_another_change() -> None:
    change = change_needed("Pending", f"{POD_SET}{EXCEEDS}, {TAINT}")
    assert change == (
        "request less (resources_per_node, num_nodes), or have the quota raised, or tolerate the flavor's taint in"
        " scheduling.tolerations"
    )


@pytest.mark.parametrize(
    "message",
    [
        "",
        f"{POD_SET}{BUSY}",
        f"{POD_SET}{BUSY.replace('flavor f', 'flavor g')}, {EXCEEDS}",
        f"{POD_SET}{BUSY}. Pending the preemption of 1 workload(s)",
        f"{POD_SET}{EXCEEDS}, a reason of a later version of Kueue",
        f"{POD_SET}{TAINT}, could not assign f flavor since the original workload is assigned: g",
        f'{POD_SET}topology "default" doesn\'t allow to fit any of 2 pod(s)',
        "waiting for all admitted workloads to be in PodsReady condition",
        "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue",
        "The workload has failed admission checks",
        f"{POD_SET}{EXCEEDS}" + " " * 20_000,
    ],
)
def test_a_run_that_may_be_admitted_later_needs_no_change(message: str) -> None:
    assert change_needed("Pending", message) == ""


@pytest.mark.parametrize("reason", ["Misconfigured", "Suspended"])
def test_the_reasons_of_newer_versions_are_known(reason: str) -> None:
    assert change_needed(reason, "a message of a later version of Kueue")
    assert not change_needed("WaitingForQuota", "a message of a later version of Kueue")


@given(st.text(), st.lists(st.sampled_from([POD_SET, EXCEEDS, BUSY, TAINT, ", ", "; ", "(", "LocalQueue q is "])))
def test_any_message_is_read_without_an_error(text: str, parts: list[str]) -> None:
    assert isinstance(change_needed("Pending", "".join(parts) + text), str)


def test_a_deactivated_workload_states_the_command_that_activates_it() -> None:
    workload = read_kueue_workload({**reserved("The workload is deactivated"), "spec": {"active": False}})
    assert workload.change == (
        """kubectl patch workloads.kueue.x-k8s.io w --type merge -p '{"spec": {"active": true}}' activates it"""
    )


@pytest.mark.parametrize(
    ("reason", "paused"),
    [("ClusterQueueStopped", True), ("Deactivated", True), ("DeactivatedDueToRequeuingLimitExceeded", False)],
)
def test_an_evicted_workload_is_paused_unless_kueue_gave_it_up(reason: str, paused: bool) -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": reason, "message": "The ClusterQueue is stopped"}
    data = reserved("ClusterQueue gpus is stopped", "Inadmissible")
    data["status"]["conditions"].append(evicted)  # type: ignore[index]  # the data is a Workload's
    assert read_kueue_workload(data).paused is paused


@pytest.mark.parametrize(
    ("message", "paused"),
    [
        ("ClusterQueue gpus is inactive", True),
        ("ClusterQueue gpus is stopped", True),
        ("LocalQueue team is inactive", True),
        ("LocalQueue team is stopped", True),
        ("ClusterQueue gpus doesn't exist", False),
        (f"{POD_SET}{EXCEEDS}", False),
    ],
)
def test_a_new_workload_in_a_queue_that_may_be_resumed_is_paused(message: str, paused: bool) -> None:
    workload = read_kueue_workload(reserved(message, "Inadmissible"))
    assert workload.change, "the message still states the change"
    assert workload.paused is paused


def test_an_admitted_workload_needs_no_change() -> None:
    conditions = [
        {"type": name, "status": "True", "reason": "", "message": ""} for name in ("QuotaReserved", "Admitted")
    ]
    workload = read_kueue_workload({**reserved(""), "status": {"conditions": conditions}})
    assert (workload.admitted, workload.change) == (True, "")


@pytest.mark.parametrize("paths", ["", "; preemptor path: /training; preemptee path: /training"])
@pytest.mark.parametrize("other", ["", "couldn't assign flavors"])
def test_the_sentence_about_a_preemption_is_short_and_reported_once(other: str, paths: str) -> None:
    """After a preemption, both conditions have the same message."""
    why = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": f"{why}{paths}"}
    data = reserved(other or f"{why}{paths}")
    preempted = "preempted by another workload due to prioritization in the ClusterQueue"
    data["status"]["conditions"].append(evicted)  # type: ignore[index]  # the data is a Workload's
    assert read_kueue_workload(data).waiting("team").message == (
        f"{other} (evicted: {preempted})" if other else preempted
    )
