"""The target `volcano`, which renders a Volcano Job. The tasks of the Job are the groups of the plan.

The target does not use Volcano's plugins for training frameworks, because these plugins set a wrong WORLD_SIZE. Torch
expects the number of processes, but the plugins use the number of pods. Up to v1.11, the plugins even include the pods
of other tasks (volcano-sh/volcano#4238, PR 4281). The pods get the variables of the plan instead. Volcano's plugin
`svc` sets the host names of the pods.

Source: volcano-sh/volcano pkg/controllers/job (job_controller_util.go, state/{running,restarting}.go), volcano.sh/apis
v1.13 batch/v1alpha1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import LaunchPlan, PodGroup
from stepset.safe_names import LABEL_LIMIT
from stepset.spec.job import TrainingJob
from stepset.spec.template import pod_spec
from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds.limits import restarts_after_any_failure
from stepset.targets.metadata import workload_metadata
from stepset.targets.names import VOLCANO_HOSTS, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import PodStyle, pod_template
from stepset.targets.request import RenderRequest
from stepset.targets.target_spec import TargetSpec
from stepset.targets.workload_kinds import WORKLOAD_KINDS

_SCHEDULER = "volcano"
_FAILURES = ["PodFailed", "PodEvicted"]


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the manifests, in the order in which they must be applied."""
    names = PodNames(request.plan, request.run, request.run, VOLCANO_HOSTS)
    marks = WORKLOAD_KINDS["volcano"].marks
    style = PodStyle(names, f"metadata.annotations['{marks.pod_index}']", f"metadata.annotations['{marks.attempt}']")
    templates = {group.name: pod_template(request, group, style) for group in request.plan.groups}
    workload = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": workload_metadata(request),
        "spec": _spec(request, templates),
    }
    return [*companions(request, names), workload]


def _spec(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    job, plan = request.job, request.plan
    first = gang.min_members(job, plan, gang.stages(plan)[0])
    restarts = job.restart.max_restarts
    # Volcano performs maxRetry - 1 restarts, so maxRetry must be one more than the number of restarts. If no restarts
    # are allowed, Volcano terminates the job, and keeps the failed pods and their logs.
    on_failure = {"events": _FAILURES, "action": "RestartJob" if restarts else "TerminateJob"}
    return {
        "schedulerName": _SCHEDULER,
        **without_empty(queue=job.scheduling.queue_name, priorityClassName=job.scheduling.priority_class),
        "minAvailable": sum(first.values()),
        **without_empty(maxRetry=restarts + 1 if restarts else None, ttlSecondsAfterFinished=job.ttl),
        "plugins": {"svc": ["--publish-not-ready-addresses", "--disable-network-policy"]},
        "policies": [on_failure],
        "tasks": [_task(request, group, templates[group.name]) for group in plan.groups],
    }


def _task(request: RenderRequest, group: PodGroup, template: Mapping[str, Any]) -> dict[str, Any]:
    plan, deadline = request.plan, request.job.deadline
    spec = template["spec"] if deadline is None else {**template["spec"], "activeDeadlineSeconds": deadline}
    waits = [after.group for after in group.start_after]
    # When the group that determines success has completed, Volcano completes the job and stops the other pods.
    done = [{"event": "TaskCompleted", "action": "CompleteJob"}] if group.name == plan.success.group else []
    return {
        "name": group.name,
        "replicas": group.count,
        **without_empty(dependsOn={"name": waits, "iteration": "all"} if waits else None, policies=done),
        "template": {**template, "spec": spec},
    }


def problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each feature of a job that a Volcano Job does not support."""
    yield from restarts_after_any_failure(job, "volcano")
    for group in plan.groups:
        for after in group.start_after:
            if after.condition == "Complete":
                yield (
                    f"roles.{after.group}.before: Volcano starts the nodes once the role runs, not once it is complete;"
                    " use target jobset with scheduling.gang: volcano"
                )
    if job.deadline is not None and job.restart.max_restarts:
        # A lifecycle policy of Volcano can match events and exit codes, but not the reason DeadlineExceeded of a pod
        # (volcano pkg/controllers/job/job_controller_util.go, applyPolicies).
        yield (
            "deadline: a Volcano Job counts a pod that exceeds it as failed, and would start the gang again; leave out"
            " restart.max_restarts, or use target jobset with scheduling.gang: volcano"
        )
    if job.deadline is not None and "activeDeadlineSeconds" in pod_spec(job.pod_template):
        yield "pod_template.activeDeadlineSeconds: target volcano writes deadline into this field; leave one out"
    if plan.world.elastic:
        yield (
            "framework.elastic: a Volcano Job restarts all its pods, not one; use target jobset with"
            " scheduling.gang: volcano"
        )
    if job.network.subdomain is not None:
        yield "network.subdomain: Volcano names the Service after the job; leave it out"
    if job.scheduling.gang is not None and gang.gang_of(job) != "volcano":
        yield f"scheduling.gang: Volcano itself schedules the gang, not {job.scheduling.gang}; leave it out"


def name_budget(plan: LaunchPlan) -> int:
    """Returns the maximum length of a run's name. The host name of a pod is `NAME-GROUP-INDEX`."""
    return min(LABEL_LIMIT - len(f"-{group.name}-{group.count - 1}") for group in plan.groups)


SPEC = TargetSpec(
    render=render,
    problems=problems,
    name_budget=name_budget,
    max_pods=None,
    # Source: volcano-sh/volcano docs/user-guide/how_to_use_svc_plugin.md.
    reserved_env=re.compile("VC_[A-Z0-9_]+_(HOSTS|NUM)"),
    own_fields=(),
    manifest_fields={
        r"spec\.queue$": "scheduling.queue_name",
        r"spec\.priorityClassName$": "scheduling.priority_class",
    },
)
