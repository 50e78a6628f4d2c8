"""Renders the fields and objects for gang scheduling. With gang scheduling, a scheduler starts either all pods or none.

Each stage of a run has its own PodGroup. The pods of later stages are created only after the pods of earlier stages
have started. With a single PodGroup, the scheduler would wait for these pods forever (kubeflow/trainer#2525,
kubeflow/mpi-operator#608).
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
# The names of the schedulers in the Helm charts of scheduler-plugins and Volcano. If a cluster uses other names, the
# user must set pod_template.spec.schedulerName.
_SCHEDULERS = {"coscheduling": "scheduler-plugins-scheduler", "volcano": "volcano"}


def gang_of(job: TrainingJob) -> Gang:
    """Returns the gang scheduler of a job. If `scheduling.gang` is not set, a job with a queue uses Kueue."""
    return job.scheduling.gang or ("kueue" if job.scheduling.queue_name else "none")


def queue_labels(job: TrainingJob) -> dict[str, str]:
    """Returns the label that assigns a workload to a Kueue LocalQueue."""
    if gang_of(job) != "kueue" or job.scheduling.queue_name is None:
        return {}
    return {QUEUE_LABEL: job.scheduling.queue_name}


def suspended(job: TrainingJob) -> dict[str, Any]:
    """Returns the field `suspend` for a workload that Kueue starts.

    Without this field, pods could be created before Kueue admits the workload.
    """
    return {"suspend": True} if gang_of(job) == "kueue" else {}


def stages(plan: LaunchPlan) -> tuple[tuple[PodGroup, ...], ...]:
    """Returns the stages of a run in the order in which they start. Each stage is a tuple of pod groups.

    The groups of the first stage do not wait for other groups. The groups of a later stage wait for groups of earlier
    stages.
    """
    depth: dict[str, int] = {}
    found: dict[int, list[PodGroup]] = {}
    for group in plan.groups:  # a group waits only for groups that precede it in the plan
        level = depth[group.name] = 1 + max((depth[after.group] for after in group.start_after), default=-1)
        found.setdefault(level, []).append(group)
    return tuple(tuple(found[level]) for level in sorted(found))


def min_members(job: TrainingJob, plan: LaunchPlan, stage: tuple[PodGroup, ...]) -> dict[str, int]:
    """Returns, for each group of a stage, the minimum number of pods that must be schedulable at the same time.

    By default, all pods of the group must be schedulable. For the nodes of an elastic world, the number is `min_nodes`.
    If the job sets `scheduling.min_member`, this value is divided among the groups of the stage that contains the
    nodes. The nodes get as much of the value as possible. The other groups of the stage get the rest.
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
    """Returns the name of the PodGroup of a stage.

    If the stage contains the nodes, the PodGroup has the name of the run. If the stage consists of a single pod that is
    not a node, the stage has no PodGroup, and the function returns None.
    """
    if any(group.name == NODE for group in stage):
        return request.run
    if sum(group.count for group in stage) < 2:
        return None
    return f"{request.run}-{stage[0].name}"


def template_fields(request: RenderRequest) -> dict[str, dict[str, Any]]:
    """Returns the fields of pod templates that assign the pods to a gang, by the names of the groups.

    The result is empty if the job has no gang scheduler, or if Kueue is the gang scheduler.
    """
    if gang_of(request.job) not in _SCHEDULERS:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for stage in stages(request.plan):
        found |= dict.fromkeys((group.name for group in stage), _fields_of_stage(request, stage))
    return found


def _fields_of_stage(request: RenderRequest, stage: tuple[PodGroup, ...]) -> dict[str, Any]:
    kind = gang_of(request.job)
    spec = {"spec": {"schedulerName": _SCHEDULERS[kind]}}
    name = group_name(request, stage)
    if name is None:
        return spec
    if kind == "coscheduling":
        return {"metadata": {"labels": {_COSCHEDULING_LABEL: name}}, **spec}
    return {"metadata": {"annotations": {_VOLCANO_ANNOTATION: name}}, **spec}


def pod_groups(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the PodGroups of a run. There is one PodGroup for each stage.

    If a stage consists of a single pod that is not a node, the stage has no PodGroup.

    Args:
        templates: a mapping from the names of the groups to their pod templates. The templates contain the resources
            that the pods request.
    """
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
