"""All pods or none: the fields for the queue or the scheduler, and the pods that are counted."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from stepset.targets.gang import stages
from stepset.targets.quantities import format_quantity, pod_requests, total
from tests.targets.making import of_kind, plan, pod, rendered, workload

PREPARE = {"name": "prepare", "before": True, "command": ["fetch"]}
MONITOR = {"name": "monitor", "command": ["watch"], "replicas": 2}
NODE = {"cpu": 2, "memory": "4Gi", "gpus": 8}
ALL = ("jobset", "trainjob", "statefulset", "job")


def _pod_groups(**job: Any) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in rendered(**job) if each["kind"] == "PodGroup"}


class TestKueue:
    @pytest.mark.parametrize("target", ALL)
    def test_the_queue_label_suspends_the_workload(self, target: str) -> None:
        found = workload(rendered(target, scheduling={"queue_name": "team-a"}))
        assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        # A StatefulSet has no such field; Kueue gates its pods instead.
        assert found["spec"].get("suspend") == (None if target == "statefulset" else True)

    def test_a_trainjob_is_suspended_and_not_the_jobset_behind_it(self) -> None:
        objects = rendered("trainjob", scheduling={"queue_name": "team-a"})
        assert "suspend" not in of_kind(objects, "TrainingRuntime")["spec"]["template"]["spec"]

    def test_without_a_queue_nothing_is_suspended(self) -> None:
        found = workload(rendered())
        assert "suspend" not in found["spec"]
        assert "kueue.x-k8s.io/queue-name" not in found["metadata"]["labels"]


class TestPodGroups:
    @pytest.mark.parametrize("target", ALL)
    def test_coscheduling_counts_the_nodes_and_finds_them_by_label(self, target: str) -> None:
        objects = rendered(target, num_nodes=4, resources_per_node=NODE, scheduling={"gang": "coscheduling"})
        group = of_kind(objects, "PodGroup")
        assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
        assert group["spec"]["minMember"] == 4
        assert group["spec"]["minResources"] == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "32"}
        template = pod(objects)
        assert template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "digits"
        assert template["spec"]["schedulerName"] == "scheduler-plugins-scheduler"

    def test_volcano_finds_them_by_annotation_and_gets_queue_and_priority(self) -> None:
        scheduling = {"gang": "volcano", "queue_name": "research", "priority_class": "high"}
        objects = rendered(num_nodes=2, scheduling=scheduling)
        group = of_kind(objects, "PodGroup")
        assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
        assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("research", "high")
        template = pod(objects)
        assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "digits"
        assert template["spec"]["schedulerName"] == "volcano"

    def test_the_template_can_set_another_scheduler(self) -> None:
        objects = rendered(scheduling={"gang": "coscheduling"}, pod_template={"schedulerName": "mine"})
        assert pod(objects)["spec"]["schedulerName"] == "mine"

    def test_a_launcher_that_waits_for_its_nodes_is_not_counted_with_them(self) -> None:
        job = {"framework": "mpi", "num_nodes": 3, "procs_per_node": 1, "scheduling": {"gang": "coscheduling"}}
        assert {name: spec["minMember"] for name, spec in _pod_groups(**job).items()} == {"digits": 3}
        assert "scheduling.x-k8s.io/pod-group" not in pod(rendered(**job), "launcher")["metadata"]["labels"]

    def test_pods_that_start_before_the_nodes_are_a_separate_gang(self) -> None:
        job: dict[str, Any] = {
            "num_nodes": 4,
            "roles": [PREPARE, MONITOR],
            "resources_per_node": NODE,
            "scheduling": {"gang": "coscheduling"},
        }
        groups = _pod_groups(**job)
        assert {name: spec["minMember"] for name, spec in groups.items()} == {"digits-prepare": 3, "digits": 4}
        assert "minResources" not in groups["digits-prepare"]

    def test_a_single_pod_needs_no_gang(self) -> None:
        job = {"num_nodes": 2, "roles": [PREPARE], "scheduling": {"gang": "volcano"}}
        assert list(_pod_groups(**job)) == ["digits"]

    def test_roles_that_start_with_the_nodes_are_counted_with_them(self) -> None:
        job = {"num_nodes": 2, "roles": [MONITOR], "scheduling": {"gang": "volcano"}}
        assert _pod_groups(**job)["digits"]["minMember"] == 4

    def test_an_elastic_world_needs_its_smallest_size(self) -> None:
        job = {
            "framework": {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4}},
            "num_nodes": 4,
            "resources_per_node": {"cpu": 2},
            "scheduling": {"gang": "coscheduling"},
        }
        group = _pod_groups(**job)["digits"]
        assert (group["minMember"], group["minResources"]) == (2, {"cpu": "4"})

    def test_min_member_counts_nodes_first(self) -> None:
        job: dict[str, Any] = {
            "num_nodes": 4,
            "roles": [MONITOR],
            "resources_per_node": {"cpu": 2},
            "scheduling": {"gang": "coscheduling", "min_member": 3},
        }
        group = _pod_groups(**job)["digits"]
        assert (group["minMember"], group["minResources"]) == (3, {"cpu": "6"})


class TestStages:
    def test_groups_start_after_the_groups_they_wait_for(self) -> None:
        found = stages(plan(framework="mpi", procs_per_node=1, roles=[PREPARE, MONITOR]))
        assert [[group.name for group in stage] for stage in found] == [["prepare", "monitor"], ["node"], ["launcher"]]


class TestAmounts:
    """As kubernetes v1.36 pkg/api/v1/resource/helpers.go counts a pod."""

    def test_containers_are_summed_and_limits_replace_missing_requests(self) -> None:
        one = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "memory": "1Gi"}}}
        two = {"resources": {"limits": {"cpu": "500m"}}}
        assert total([(pod_requests({"containers": [one, two]}), 2)]) == {"cpu": "3", "memory": "2Gi"}

    def test_the_largest_init_container_counts_if_it_requests_more(self) -> None:
        spec = {
            "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1"}}}],
        }
        assert pod_requests(spec) == {"cpu": Decimal(3), "memory": Decimal(1)}

    def test_a_sidecar_counts_with_the_containers_and_with_the_init_containers_after_it(self) -> None:
        sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        later = {"resources": {"requests": {"cpu": "3"}}}
        main = {"resources": {"requests": {"cpu": "2"}}}
        assert pod_requests({"initContainers": [sidecar, later], "containers": [main]}) == {"cpu": Decimal(4)}

    def test_overhead_is_added(self) -> None:
        spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "250m"}}
        assert total([(pod_requests(spec), 4)]) == {"cpu": "5"}

    @pytest.mark.parametrize(
        ("amount", "text"), [("0.1", "100m"), ("1024", "1Ki"), ("1000", "1000"), ("1.0001", "1001m"), ("0", "0")]
    )
    def test_amounts_are_written_short_and_never_rounded_down(self, amount: str, text: str) -> None:
        assert format_quantity(Decimal(amount)) == text


class TestPeers:
    """Rows about gangs in the conformance data of the peers, by their names."""

    def test_mpiop_gang_min_available_explicit(self) -> None:
        job = {"framework": "mpi", "num_nodes": 1000, "procs_per_node": 1}
        groups = _pod_groups(**job, scheduling={"gang": "coscheduling", "min_member": 2})
        assert groups["digits"]["minMember"] == 2

    def test_mpiop_gang_min_available_default_less_the_launcher_that_comes_later(self) -> None:
        job = {"framework": "mpi", "num_nodes": 99, "procs_per_node": 1}
        assert _pod_groups(**job, scheduling={"gang": "coscheduling"})["digits"]["minMember"] == 99  # there: 100

    def test_torchx_k8s_min_replicas_to_min_available(self) -> None:
        elastic = {"min_nodes": 2, "max_nodes": 3}
        job = {"framework": {"kind": "torch", "elastic": elastic}, "num_nodes": 3, "procs_per_node": 1}
        assert _pod_groups(**job, scheduling={"gang": "volcano"})["digits"]["minMember"] == 2

    def test_torchx_k8s_retry_policy_application(self) -> None:
        spec = workload(rendered("volcano", restart={"max_restarts": 3}))["spec"]
        (policy,) = spec["policies"]
        assert {(event, policy["action"]) for event in policy["events"]} == {
            ("PodEvicted", "RestartJob"),
            ("PodFailed", "RestartJob"),
        }
