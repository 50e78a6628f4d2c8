"""The Volcano Job: the world, restarts, success, order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.targets.making import env, of_kind, rendered, workload

MONITOR = {"name": "monitor", "command": ["watch"], "replicas": 4}


def _spec(**job: Any) -> dict[str, Any]:
    return workload(rendered("volcano", **job))["spec"]


def test_the_world_does_not_grow_with_tasks_beside_it() -> None:
    """A defect of Volcano's pytorch plugin up to v1.11: WORLD_SIZE was 8 for 4 nodes and 4 extra pods."""
    job = {"framework": {"kind": "torch", "launcher": "none"}, "num_nodes": 4, "procs_per_node": 1}
    objects = rendered("volcano", roles=[MONITOR], **job)
    assert env(objects)["WORLD_SIZE"] == "4"
    assert env(objects, "monitor") == {}
    assert env(objects) == env(rendered("volcano", **job))


def test_no_framework_plugin_of_volcanos_adds_variables() -> None:
    assert list(_spec()["plugins"]) == ["svc"]


def test_names_resolve_before_pods_are_ready() -> None:
    assert "--publish-not-ready-addresses" in _spec()["plugins"]["svc"]


def test_each_group_is_a_task_and_those_that_start_first_are_the_gang() -> None:
    spec = _spec(num_nodes=4, roles=[MONITOR])
    assert [(task["name"], task["replicas"]) for task in spec["tasks"]] == [("monitor", 4), ("node", 4)]
    assert spec["minAvailable"] == 8


def test_mpis_launcher_waits_for_its_nodes_and_is_not_in_the_gang() -> None:
    spec = _spec(framework="mpi", num_nodes=3, procs_per_node=1)
    launcher = spec["tasks"][-1]
    assert launcher["dependsOn"] == {"name": ["node"], "iteration": "all"}
    assert spec["minAvailable"] == 3


def test_the_job_is_done_when_the_world_is() -> None:
    done = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    assert {task["name"]: task.get("policies") for task in _spec(roles=[MONITOR])["tasks"]} == {
        "monitor": None,
        "node": done,
    }
    assert _spec(framework="mpi", procs_per_node=1)["tasks"][-1]["policies"] == done


@pytest.mark.parametrize(("restarts", "action", "retries"), [(0, "TerminateJob", None), (2, "RestartJob", 3)])
def test_a_failed_or_lost_pod_ends_or_restarts_the_whole_job(restarts: int, action: str, retries: int | None) -> None:
    spec = _spec(restart={"max_restarts": restarts})
    assert spec["policies"] == [{"events": ["PodFailed", "PodEvicted"], "action": action}]
    assert spec.get("maxRetry") == retries


def test_queue_priority_deadline_and_time_to_live_are_volcanos() -> None:
    job = {"scheduling": {"queue_name": "research", "priority_class": "high"}, "deadline": "1h", "ttl": "2h"}
    spec = _spec(**job)
    assert (spec["queue"], spec["priorityClassName"], spec["ttlSecondsAfterFinished"]) == ("research", "high", 7200)
    assert spec["tasks"][0]["template"]["spec"]["activeDeadlineSeconds"] == 3600
    assert "kueue.x-k8s.io/queue-name" not in workload(rendered("volcano", **job))["metadata"]["labels"]


def test_volcano_creates_the_pod_group_and_the_service() -> None:
    kinds = {each["kind"] for each in rendered("volcano", scheduling={"gang": "volcano"})}
    assert kinds == {"ConfigMap", "Job"}
    assert of_kind(rendered("volcano"), "Job")["apiVersion"] == "batch.volcano.sh/v1alpha1"
