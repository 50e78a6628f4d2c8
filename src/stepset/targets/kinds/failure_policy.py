"""Renders the failure policies of Jobs and JobSets. A failure policy defines what happens after a pod has failed.

Kubernetes can distinguish three kinds of failures:

- A disruption, which is an eviction, a preemption or the loss of a node. The pod has the condition DisruptionTarget.
  The gang is restarted. The restart does not count against `max_restarts`.
- An error of the training code. The gang is restarted. The restart counts against `max_restarts`. If the job sets
  `restart.user_errors: fail`, the run fails without a restart.
- Any other failure, such as a lack of memory (exit code 137). The gang is restarted. The restart counts against
  `max_restarts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.hang import HANG_CODES
from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.spec.job import TrainingJob
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import CONTAINER

# The exit codes that do not mean an error of the training code. 70 to 75 are exit codes of the agent
# (docs/design/agent.md), of which 74 means a hang that the training code has caused. 137 means SIGKILL, which the
# kernel sends if memory runs out. 143 means SIGTERM.
_RESULT_REJECTED = 72
_NOT_USER_ERRORS = (70, 71, _RESULT_REJECTED, 73, 75, 137, 143)

_DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def job_policies(job: TrainingJob, plan: LaunchPlan, group: PodGroup) -> dict[str, Any]:
    """Returns the fields of a Job that define when the Job fails and when the Job succeeds.

    - The Job of a gang fails as soon as one of its pods fails.
    - The Job of an elastic world replaces failed pods.
    - If the number of nodes of an elastic world may decrease, the Job succeeds when pod 0 exits with 0. At that time,
      all other pods of the last rendezvous round have already exited with 0.
    """
    elastic = plan.world.elastic if group.name == NODE else None
    disruption = {"action": "Ignore" if elastic else "FailJob", "onPodConditions": _DISRUPTED}
    policies: dict[str, Any] = {
        "backoffLimit": job.restart.max_restarts if elastic else 0,
        "podFailurePolicy": {"rules": [disruption, *_exit_code_rules(job, group)]},
    }
    if plan.success.first and group.name == plan.success.group:
        policies["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    return policies


def _exit_code_rules(job: TrainingJob, group: PodGroup) -> list[dict[str, Any]]:
    """Returns the rules for exit codes after which the gang is not restarted."""
    if not job.restart.max_restarts:
        return []
    rules = []
    if group.agent is not None:
        # The agent has rejected the result of the run. A restart would not change the result.
        hang = job.hang_times
        final = HANG_CODES if hang is not None and hang.action == "fail" else ()
        rules.append(_fail_job("In", (_RESULT_REJECTED, *final)))
    if job.restart.user_errors == "fail":
        rules.append(_fail_job("NotIn", _NOT_USER_ERRORS))
    return rules


def _fail_job(operator: str, codes: tuple[int, ...]) -> dict[str, Any]:
    requirement = {"containerName": CONTAINER, "operator": operator, "values": list(codes)}
    return {"action": "FailJob", "onExitCodes": requirement}


def _rule(name: str, action: str, reason: str, patterns: Sequence[str] = ()) -> dict[str, Any]:
    match = without_empty(onJobFailureMessagePatterns=list(patterns))
    return {"name": name, "action": action, "onJobFailureReasons": [reason], **match}


def jobset_failure_policy(job: TrainingJob, plan: LaunchPlan) -> dict[str, Any]:
    """Returns the `failurePolicy` of a JobSet. The policy defines when the whole gang is restarted.

    The rules match the reason and the message of a failed Job (kubernetes v1.36
    pkg/controller/job/pod_failure_policy.go, kubernetes-sigs/jobset v0.12.0 pkg/controllers/failure_policy.go). The
    first rule that matches is applied. If no rule matches, the gang is restarted until `max_restarts` is reached.
    """
    rules = []
    if job.deadline is not None:
        rules.append(_rule("deadline", "FailJobSet", "DeadlineExceeded"))
    elastic = plan.world.elastic is not None
    if job.restart.max_restarts and not elastic:
        rules.append(_rule("final_exit_code", "FailJobSet", "PodFailurePolicy", ["failed with exit code"]))
    rules.append(_rule("disruption", "RestartJobSetAndIgnoreMaxRestarts", "PodFailurePolicy", ["DisruptionTarget"]))
    return {
        "maxRestarts": 0 if elastic else job.restart.max_restarts,
        # After a restart, the pods have the same host names as before. Therefore the new pods must not start while old
        # pods are running.
        "restartStrategy": "BlockingRecreate",
        "rules": rules,
    }
