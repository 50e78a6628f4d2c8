"""Decides whether a workload plans a Job or a pod that claims to belong to it.

The creator of an object chooses its name, its labels and its owners. Therefore an owner does not prove that the object
belongs to the workload.
"""

from __future__ import annotations

from msgspec import structs

from stepset.plan.model import NODE
from stepset.unstructured import to_number
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.workload import Workload


def job_of(jobset: Workload, job: Workload) -> Workload | None:
    """Returns a Job with the name of its group in a JobSet. Returns None if the Job does not belong to the JobSet.

    The JobSet must be the owner of the Job. The name of the Job must be a name that the JobSet can create. The watch of
    Jobs may be ahead of the watch of JobSets by one restart.
    """
    if job.kind != "Job" or job.owner != jobset.uid or job.attempt > jobset.attempt + 1:
        return None
    prefix, _, index = job.name.rpartition("-")
    group = prefix.removeprefix(f"{jobset.name}-")
    jobs = jobset.replicas.get(group, 0)
    if to_number(index, -1) not in range(jobs):
        return None
    return structs.replace(job, groups={group: jobset.groups[group] // jobs})


def is_planned(creator: Workload, pod: Pod) -> bool:
    """Returns whether a workload plans a pod with the place of `pod`.

    The controller of a StatefulSet adopts each pod whose name ends with digits. It never deletes a pod whose ordinal is
    not a 32-bit number (kubernetes v1.36 pkg/controller/statefulset/stateful_set_utils.go, getParentNameAndOrdinal).
    Volcano ignores a pod without its annotations (volcano v1.10 pkg/controllers/job/job_controller_handler.go, addPod).
    Therefore the name of a pod of a StatefulSet or Volcano Job must be exactly the name that the controller creates for
    its place.
    """
    if creator.pods_decide:
        return pod.group == NODE and pod.index < creator.planned and pod.name == f"{creator.name}-{pod.index}"
    if creator.names_pods and pod.name != f"{creator.name}-{pod.group}-{pod.index}":
        return False
    return pod.index < creator.groups.get(pod.group, 0)
