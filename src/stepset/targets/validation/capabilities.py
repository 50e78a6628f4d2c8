"""Detects features of a job that a target does not support."""

from __future__ import annotations

from collections.abc import Iterator

from stepset.plan.model import NODE, LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.template import beside_node, node_container, pod_spec
from stepset.targets.gang import gang_of
from stepset.targets.pods.sidecars import NEVER

_JOBSETS = ("jobset", "trainjob")
_SINGLE_GROUP = ("job", "statefulset")


def missing_capabilities(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    """Yields one line for each feature of a job that the target does not support."""
    if target in _JOBSETS:
        return
    if target in _SINGLE_GROUP:
        yield from _single_group(job, plan, target)
    yield from _restarts(job, plan, target)
    if target == "statefulset":
        yield from _statefulset(job)
    if target == "volcano":
        yield from _volcano(job, plan)
    if job.scheduling.topology.exclusive:
        yield f"scheduling.topology.exclusive: only a JobSet has it; leave it out, or use another target than {target}"


def _single_group(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    for group in plan.groups:
        if group.name == NODE:
            continue
        field = "framework" if group.name == plan.success.group else f"roles.{group.name}"
        yield (
            f"{field}: target {target} cannot start and stop pods of several kinds together; use target"
            " jobset, trainjob or volcano"
        )


def _restarts(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    restart = job.restart
    if not restart.max_restarts:
        return
    if target == "job" and plan.world.elastic is None:
        yield (
            "restart.max_restarts: target job cannot start the whole gang again; leave it out, or use target jobset,"
            " trainjob or volcano"
        )
    elif restart.user_errors == "fail" and target != "job":
        yield (
            f"restart.user_errors: target {target} cannot distinguish errors of the training code from others; leave it"
            " out, or use target jobset or trainjob"
        )


def _statefulset(job: TrainingJob) -> Iterator[str]:
    for field, given in (("deadline", job.deadline), ("ttl", job.ttl)):
        if given is not None:
            yield f"{field}: a StatefulSet has none; leave it out, or use another target"
    if "activeDeadlineSeconds" in pod_spec(job.pod_template):
        yield "pod_template.activeDeadlineSeconds: a StatefulSet has none; leave it out, or use another target"
    for place, row in beside_node(job.pod_template):
        if row.get("restartPolicy") == NEVER:
            yield (
                f"{place}.restartPolicy: a StatefulSet restarts every container that ends; leave it out, or use"
                " another target"
            )
    container = node_container(job.pod_template)
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        if container.get(probe):
            yield (
                f"pod_template.containers.{NODE}.{probe}: a pod of a StatefulSet is Ready when its rank has ended, and"
                " then only waits; leave it out, or use another target"
            )


def _volcano(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
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
    if job.scheduling.gang is not None and gang_of(job) != "volcano":
        yield f"scheduling.gang: Volcano itself schedules the gang, not {job.scheduling.gang}; leave it out"
