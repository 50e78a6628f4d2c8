"""The JobSet: the order of starts, the meaning of failures, the end of the run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.targets.making import of_kind, pod, rendered, replicated_job

PREPARE = {"name": "prepare", "before": True, "command": ["fetch"]}
MONITOR = {"name": "monitor", "command": ["watch"]}

# What Kubernetes' Job controller reports about a Job that a pod's failure ended: (reason, message). Sources: kubernetes
# v1.36.3 pkg/controller/job/{pod_failure_policy.go,job_controller.go}.
DISRUPTED = (
    "PodFailurePolicy",
    "Pod ns/digits-node-0-1-x2x9f has condition DisruptionTarget matching FailJob rule at index 0",
)
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")


def _exited(code: int, rule: int) -> tuple[str, str]:
    what = f"Container node for pod ns/digits-node-0-1-x2x9f failed with exit code {code}"
    return "PodFailurePolicy", f"{what} matching FailJob rule at index {rule}"


COUNTED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def _job_failure(job: dict[str, Any], *, code: int = 0, disrupted: bool = False) -> tuple[str, str] | None:
    """Returns how a Job fails after a pod, by its podFailurePolicy; None if the Job continues."""
    for index, rule in enumerate(job["podFailurePolicy"]["rules"]):
        on_code = rule.get("onExitCodes")
        listed = bool(on_code) and (code in on_code["values"]) == (on_code["operator"] == "In")
        if (listed and code != 0) if on_code else disrupted:
            if rule["action"] == "Ignore":
                return None
            return DISRUPTED if not on_code else _exited(code, index)
    return COUNTED


def _jobset_action(jobset: dict[str, Any], failure: tuple[str, str]) -> str:
    """Returns the action of a JobSet after a failed Job: the first matching rule, else a restart that counts."""
    for rule in jobset["spec"]["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [])
        if failure[0] in rule["onJobFailureReasons"] and (
            not patterns or any(re.search(pattern, failure[1]) for pattern in patterns)
        ):
            return str(rule["action"])
    return "RestartJobSet"


def _answer(*, code: int = 0, disrupted: bool = False, **job: Any) -> str | None:
    objects = rendered(num_nodes=2, **job)
    failure = _job_failure(replicated_job(objects)["template"]["spec"], code=code, disrupted=disrupted)
    return None if failure is None else _jobset_action(of_kind(objects, "JobSet"), failure)


class TestFailure:
    """By the rules in the source of both controllers."""

    @pytest.mark.parametrize("restart", [{}, {"max_restarts": 3}, {"max_restarts": 3, "user_errors": "fail"}])
    def test_a_disruption_restarts_the_gang_without_counting(self, restart: dict[str, Any]) -> None:
        assert _answer(disrupted=True, code=143, restart=restart) == "RestartJobSetAndIgnoreMaxRestarts"

    @pytest.mark.parametrize("code", [1, 2, 42, 134, 139])
    def test_an_error_of_the_training_code_counts_or_is_final(self, code: int) -> None:
        assert _answer(code=code, restart={"max_restarts": 3}) == "RestartJobSet"
        assert _answer(code=code, restart={"max_restarts": 3, "user_errors": "fail"}) == "FailJobSet"

    @pytest.mark.parametrize("code", [137, 143, 70, 71, 73])
    def test_memory_errors_signals_and_agent_errors_always_count(self, code: int) -> None:
        for restart in ({"max_restarts": 3}, {"max_restarts": 3, "user_errors": "fail"}):
            assert _answer(code=code, restart=restart) == "RestartJobSet"

    def test_a_rejected_result_is_final(self) -> None:
        assert _answer(code=72, restart={"max_restarts": 3}) == "FailJobSet"

    def test_a_hang_counts_or_is_final(self) -> None:
        hang = {"action": "restart"}
        for user_errors, code, expected in (
            ("restart", 74, "RestartJobSet"),
            ("restart", 75, "RestartJobSet"),
            ("fail", 74, "FailJobSet"),
            ("fail", 75, "RestartJobSet"),  # the machine may be the cause
        ):
            restart = {"max_restarts": 3, "user_errors": user_errors}
            assert _answer(code=code, restart=restart, hang=hang) == expected
        for code in (74, 75):
            assert _answer(code=code, restart={"max_restarts": 3}, hang={"action": "fail"}) == "FailJobSet"

    def test_the_deadline_is_final(self) -> None:
        objects = rendered(deadline="1h", restart={"max_restarts": 3})
        assert _jobset_action(of_kind(objects, "JobSet"), DEADLINE) == "FailJobSet"
        assert replicated_job(objects)["template"]["spec"]["activeDeadlineSeconds"] == 3600

    def test_the_whole_gang_restarts_after_its_old_pods_are_deleted(self) -> None:
        policy = of_kind(rendered(restart={"max_restarts": 3}), "JobSet")["spec"]["failurePolicy"]
        assert (policy["maxRestarts"], policy["restartStrategy"]) == (3, "BlockingRecreate")

    def test_a_pod_fails_its_job_at_once(self) -> None:
        spec = replicated_job(rendered())["template"]["spec"]
        assert spec["backoffLimit"] == 0
        assert spec["template"]["spec"]["restartPolicy"] == "Never"

    def test_no_pattern_is_needed_without_restarts(self) -> None:
        # A JobSet before 0.10 drops patterns; the remaining rules must have the same meaning.
        rules = replicated_job(rendered())["template"]["spec"]["podFailurePolicy"]["rules"]
        assert [list(rule) for rule in rules] == [["action", "onPodConditions"]]

    def test_jobset_accepts_the_names_of_the_rules(self) -> None:
        job = {"deadline": "1h", "restart": {"max_restarts": 1}}
        names = [rule["name"] for rule in of_kind(rendered(**job), "JobSet")["spec"]["failurePolicy"]["rules"]]
        assert len(set(names)) == len(names)
        # kubernetes-sigs/jobset v0.12.0 pkg/webhooks/jobset_webhook.go, ruleNameRegexp
        assert all(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", name) for name in names)


class TestElastic:
    JOB = {  # noqa: RUF012  # a table
        "framework": {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4}},
        "num_nodes": 4,
        "procs_per_node": 1,
        "restart": {"max_restarts": 3},
    }

    def test_a_lost_node_is_replaced_and_a_failed_node_counts(self) -> None:
        spec = replicated_job(rendered(**self.JOB))["template"]["spec"]
        assert _job_failure(spec, disrupted=True) is None
        assert spec["backoffLimit"] == 3
        assert of_kind(rendered(**self.JOB), "JobSet")["spec"]["failurePolicy"]["maxRestarts"] == 0

    def test_node_0_which_ends_with_0_after_all_others_is_the_success(self) -> None:
        assert replicated_job(rendered(**self.JOB))["template"]["spec"]["successPolicy"] == {
            "rules": [{"succeededIndexes": "0"}]
        }
        assert "successPolicy" not in replicated_job(rendered(num_nodes=4))["template"]["spec"]
        fixed = {"kind": "torch", "elastic": {"min_nodes": 4}}
        spec = replicated_job(rendered(**{**self.JOB, "framework": fixed}))["template"]["spec"]
        assert "successPolicy" not in spec, "every node must succeed"

    def test_readers_of_the_run_know_how_many_nodes_train(self) -> None:
        annotations = of_kind(rendered(**self.JOB), "JobSet")["metadata"]["annotations"]
        assert annotations["stepset.dev/min-nodes"] == "2"
        assert "stepset.dev/min-nodes" not in of_kind(rendered(num_nodes=4), "JobSet")["metadata"]["annotations"]


class TestOrder:
    def test_nodes_wait_for_roles_that_come_before_and_for_no_others(self) -> None:
        objects = rendered(roles=[PREPARE, MONITOR])
        assert replicated_job(objects)["dependsOn"] == [{"name": "prepare", "status": "Complete"}]
        assert all("dependsOn" not in replicated_job(objects, name) for name in ("prepare", "monitor"))

    def test_mpis_launcher_waits_for_its_nodes(self) -> None:
        objects = rendered(framework="mpi", num_nodes=2, procs_per_node=1)
        assert replicated_job(objects, "launcher")["dependsOn"] == [{"name": "node", "status": "Ready"}]

    @pytest.mark.parametrize("framework", ["torch", "mpi"])
    def test_a_replicated_job_depends_on_earlier_ones_only(self, framework: str) -> None:
        # JobSet's webhook rejects anything else.
        jobs = of_kind(rendered(framework=framework, roles=[MONITOR, PREPARE], procs_per_node=1), "JobSet")
        seen: set[str] = set()
        for each in jobs["spec"]["replicatedJobs"]:
            assert {d["name"] for d in each.get("dependsOn", [])} <= seen
            seen.add(each["name"])


class TestSuccess:
    def test_the_run_succeeds_with_its_nodes_regardless_of_other_pods(self) -> None:
        policy = of_kind(rendered(roles=[MONITOR]), "JobSet")["spec"]["successPolicy"]
        assert policy == {"operator": "All", "targetReplicatedJobs": ["node"]}

    def test_mpi_has_succeeded_when_its_launcher_has(self) -> None:
        policy = of_kind(rendered(framework="mpi", procs_per_node=1), "JobSet")["spec"]["successPolicy"]
        assert policy["targetReplicatedJobs"] == ["launcher"]

    def test_it_is_deleted_after_its_time_to_live(self) -> None:
        assert of_kind(rendered(ttl="1h"), "JobSet")["spec"]["ttlSecondsAfterFinished"] == 3600
        assert "ttlSecondsAfterFinished" not in of_kind(rendered(), "JobSet")["spec"]


def test_names_resolve_before_pods_are_ready() -> None:
    assert of_kind(rendered(), "JobSet")["spec"]["network"] == {
        "enableDNSHostnames": True,
        "subdomain": "digits",
        "publishNotReadyAddresses": True,
    }


def test_the_nodes_can_have_a_topology_domain_for_themselves() -> None:
    objects = rendered(
        scheduling={"topology": {"exclusive": "cloud.example/rack"}}, roles=[{"name": "board", "command": ["true"]}]
    )
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert replicated_job(objects)["template"]["metadata"]["annotations"] == {key: "cloud.example/rack"}
    assert "metadata" not in replicated_job(objects, "board")["template"]
    assert key not in of_kind(objects, "JobSet")["metadata"]["annotations"]


def test_pods_beside_the_world_do_not_get_the_nodes_resources_of_the_template() -> None:
    node = {"name": "node", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    objects = rendered(pod_template={"containers": [node]}, roles=[MONITOR])
    assert pod(objects)["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert "resources" not in pod(objects, "monitor")["spec"]["containers"][0]
