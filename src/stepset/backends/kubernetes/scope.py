"""The collections in which a run's objects are, for whoever reads or follows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepset.backends.kubernetes.resources import Resource, resource_of
from stepset.backends.kubernetes.site import EVENTS, JOBS, JOBSETS, PODS, QUEUE_WORKLOADS, Site
from stepset.backends.kubernetes.watcher import Collection
from stepset.targets.gang import QUEUE_LABEL
from stepset.targets.identity import RUN

_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_KUEUE_UID = "kueue.x-k8s.io/job-uid"

Manifest = Mapping[str, Any]


def of_run(site: Site, workload: Manifest) -> list[Collection]:
    """Everything that says something about one run.

    Args:
        site: where.
        workload: its object on top, as it was read.
    """
    name = str(workload["metadata"]["name"])
    itself = {"fieldSelector": f"metadata.name={name}"}
    found = [
        Collection(site.all(resource_of(workload)), itself),
        Collection(site.all(PODS), {"labelSelector": f"{RUN}={name}"}),
        # A field selector takes one object, and these are several; the server at least leaves out the good news.
        Collection(site.all(EVENTS), {"fieldSelector": "type=Warning"}, _concerns(name), needed=False),
    ]
    if workload["kind"] == "TrainJob":
        found.append(Collection(site.all(JOBSETS), itself, needed=False))
    if workload["kind"] in ("TrainJob", "JobSet"):
        found.append(Collection(site.all(JOBS), {"labelSelector": f"{_JOBSET_NAME}={name}"}, needed=False))
    if QUEUE_LABEL in (workload["metadata"].get("labels") or {}):
        of_it = {"labelSelector": f"{_KUEUE_UID}={workload['metadata']['uid']}"}
        found.append(Collection(site.all(QUEUE_WORKLOADS), of_it, needed=False))
    return found


def of_all_runs(site: Site, workloads: Resource) -> list[Collection]:
    """Everything that says something about the runs in a namespace, but their events.

    Args:
        site: where.
        workloads: the kind of their objects on top.
    """
    found = [
        Collection(site.all(workloads), {"labelSelector": RUN}),
        Collection(site.all(PODS), {"labelSelector": RUN}),
    ]
    if workloads.plural == "trainjobs":
        found.append(Collection(site.all(JOBSETS), {"labelSelector": RUN}, needed=False))
    if workloads.plural in ("trainjobs", "jobsets"):
        found.append(Collection(site.all(JOBS), {"labelSelector": _JOBSET_NAME}, needed=False))
    return found


def _concerns(name: str) -> Callable[[Manifest], bool]:
    """Whether an event is about something that is called as the run's objects are."""

    def wanted(event: Manifest) -> bool:
        about = str((event.get("involvedObject") or {}).get("name", ""))
        return about == name or about.startswith(f"{name}-")

    return wanted
