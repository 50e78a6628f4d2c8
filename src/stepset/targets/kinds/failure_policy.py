"""How a failed pod affects its Job and the JobSet of the gang.

Kubernetes can distinguish three kinds of failures. A disruption (eviction, preemption, node loss: the pod's condition
DisruptionTarget) restarts the gang and is not counted. An error of the training code is counted, or is final if the job
requires that. Everything else, including running out of memory (exit code 137), is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.spec.job import TrainingJob
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import CONTAINER

# Exit codes of the agent (docs/design/agent.md) and of signals that are not errors of the training code: 137 is
# SIGKILL, which the kernel sends when memory runs out, 143 SIGTERM.
_RESULT_REJECTED = 72
_NOT_USER_ERRORS = (70, 71, _RESULT_REJECTED, 73, 137, 143)

_DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def job_policies(job: TrainingJob, plan: LaunchPlan, group: PodGroup) -> dict[str, Any]:
    """Fields of a batch/v1 Job that define what a failed pod means, and when the Job has succeeded.

    A gang's Job fails as soon as one of its pods fails. The Job of an elastic world replaces single pods; if the world
    may shrink, the Job succeeds when pod 0 ends with 0, after all pods of the last rendezvous round have ended with 0.
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
        # A restart would produce the same result.
        rules.append(_fail_job("In", (_RESULT_REJECTED,)))
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
    """`failurePolicy` of a JobSet: restarts of the whole gang.

    The rules match the reason and the message with which a Job fails (kubernetes v1.36
    pkg/controller/job/pod_failure_policy.go; kubernetes-sigs/jobset v0.12.0 pkg/controllers/failure_policy.go). The
    first match wins; any other failure restarts the gang until max_restarts is reached.
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
        # A new gang must not start beside running pods of the old one, which have the same names.
        "restartStrategy": "BlockingRecreate",
        "rules": rules,
    }
