"""Gang scheduling: the queues and PodGroups with which a scheduler starts all pods or none.

Pods that start later are in a PodGroup of their own: a scheduler that waited for all pods before it starts the first
ones would wait forever (kubeflow/trainer#2525, kubeflow/mpi-operator#608).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.spec.job import TrainingJob
from stepset.targets.metadata import QUEUE_LABEL as QUEUE_LABEL
from stepset.targets.metadata import metadata
from stepset.targets.optional_fields import without_empty
from stepset.targets.quantities import pod_requests, total
from stepset.targets.request import RenderRequest

Gang = Literal["none", "kueue", "coscheduling", "volcano"]

_COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
_VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
# Names under which both schedulers install themselves (scheduler-plugins' and Volcano's Helm charts); a cluster with
# other names needs pod_template.spec.schedulerName.
_SCHEDULERS = {"coscheduling": "scheduler-plugins-scheduler", "volcano": "volcano"}


def gang_of(job: TrainingJob) -> Gang:
    """Returns the gang scheduler of a job; if the job names none, Kueue if it names a queue."""
    return job.scheduling.gang or ("kueue" if job.scheduling.queue_name else "none")


def queue_labels(job: TrainingJob) -> dict[str, str]:
    """Returns the label that assigns a workload to a Kueue LocalQueue."""
    if gang_of(job) != "kueue" or job.scheduling.queue_name is None:
        return {}
    return {QUEUE_LABEL: job.scheduling.queue_name}


def suspended(job: TrainingJob) -> dict[str, Any]:
    """`suspend` for a workload that Kueue starts: without it pods could be created before the queue admits them."""
    return {"suspend": True} if gang_of(job) == "kueue" else {}


def stages(plan: LaunchPlan) -> tuple[tuple[PodGroup, ...], ...]:
    """Returns the groups in the order of their start: those that wait for no group, those that wait for these, etc."""
    depth: dict[str, int] = {}
    for group in plan.groups:  # a group comes after those it waits for
        depth[group.name] = 1 + max((depth[after.group] for after in group.start_after), default=-1)
    return tuple(
        tuple(group for group in plan.groups if depth[group.name] == level) for level in sorted(set(depth.values()))
    )


def min_members(job: TrainingJob, plan: LaunchPlan, stage: tuple[PodGroup, ...]) -> dict[str, int]:
    """Returns group -> pods that must be schedulable at once: all, or min_nodes of an elastic world.

    `scheduling.min_member` is the total for the nodes' stage; it is assigned to the nodes first and the rest to the
    other groups.
    """
    counts = {group.name: group.count for group in stage}
    if NODE not in counts:
        return counts
    if plan.world.elastic:
        counts[NODE] = plan.world.elastic[0]
    wanted = job.scheduling.min_member
    if wanted is not None:
        sizes = {group.name: group.count for group in stage}
        for name in sorted(counts, key=lambda n: n != NODE):
            counts[name] = min(sizes[name], wanted)
            wanted -= counts[name]
    return counts


def group_name(request: RenderRequest, stage: tuple[PodGroup, ...]) -> str | None:
    """Returns the name of a stage's PodGroup: the run's name if the stage contains the nodes; None for a single pod."""
    if any(group.name == NODE for group in stage):
        return request.run
    if sum(group.count for group in stage) < 2:
        return None
    return f"{request.run}-{stage[0].name}"


def template_fields(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Returns the fields of a pod template that assign its pods to a gang."""
    kind = gang_of(request.job)
    if kind not in _SCHEDULERS:
        return {}
    stage = next(stage for stage in stages(request.plan) if group in stage)
    spec = {"spec": {"schedulerName": _SCHEDULERS[kind]}}
    name = group_name(request, stage)
    if name is None:
        return spec
    if kind == "coscheduling":
        return {"metadata": {"labels": {_COSCHEDULING_LABEL: name}}, **spec}
    return {"metadata": {"annotations": {_VOLCANO_ANNOTATION: name}}, **spec}


def pod_groups(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The PodGroups of a run: one for each stage of more than one pod. `templates` (by group) state the resources."""
    kind = gang_of(request.job)
    if kind not in _SCHEDULERS:
        return []
    objects = []
    for stage in stages(request.plan):
        name = group_name(request, stage)
        if name is None:
            continue
        counts = min_members(request.job, request.plan, stage)
        resources = total((pod_requests(templates[group]["spec"]), count) for group, count in counts.items())
        minimum = {"minMember": sum(counts.values()), **without_empty(minResources=resources)}
        objects.append(_pod_group(request, kind, name, minimum))
    return objects


def _pod_group(request: RenderRequest, kind: Gang, name: str, minimum: dict[str, Any]) -> dict[str, Any]:
    scheduling = request.job.scheduling
    if kind == "coscheduling":
        version = "scheduling.x-k8s.io/v1alpha1"
        more: dict[str, Any] = {"scheduleTimeoutSeconds": 60}
    else:
        version = "scheduling.volcano.sh/v1beta1"
        more = without_empty(queue=scheduling.queue_name, priorityClassName=scheduling.priority_class)
    return {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": metadata(request, name),
        "spec": {**minimum, **more},
    }
