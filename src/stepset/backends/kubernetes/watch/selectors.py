"""The collections that contain the objects of runs, and their selectors. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stepset.backends.kubernetes.api.resources import (
    EVENTS,
    JOBS,
    JOBSETS,
    PODS,
    QUEUE_WORKLOADS,
    Manifest,
    Resource,
    resource_of,
)
from stepset.targets.metadata import QUEUE_LABEL, RUN

_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_KUEUE_UID = "kueue.x-k8s.io/job-uid"


@dataclass(frozen=True)
class Collection:
    """Objects of one run, or of the runs of a namespace: those that the server selects and `wanted` accepts.

    `needed` is whether the run's state cannot be computed without the objects. Other collections are ignored if the
    account may not read them.
    """

    path: str
    selectors: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[Manifest], bool] = lambda _: True
    needed: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """The key of the collection's reflector: its path and selectors."""
        return self.path, str(sorted(self.selectors.items()))


def of_run(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections of one run, the workload's first; its apiVersion, kind and metadata suffice."""
    name = str(workload["metadata"]["name"])
    # A field selector can name one object only, and the run has several.
    events = Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, _concerns(name), needed=False)
    itself, pods, *others = of_kind(namespace, resource_of(workload), name)
    found = [itself, pods, events, *others]
    if _is_queued(workload):
        of_it = {"labelSelector": f"{_KUEUE_UID}={workload['metadata']['uid']}"}
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), of_it, needed=False))
    return found


def of_namespace(namespace: str, workload: Manifest) -> list[Collection]:
    """Returns the collections that the runs of a namespace share, the workloads' first."""
    events = Collection(EVENTS.path(namespace), {"fieldSelector": "type=Warning"}, needed=False)
    found = [*of_kind(namespace, resource_of(workload)), events]
    if _is_queued(workload):
        found.append(Collection(QUEUE_WORKLOADS.path(namespace), needed=False))
    return found


def of_kind(namespace: str, workloads: Resource, run: str = "") -> list[Collection]:
    """Returns the collections of all runs of one kind of workload, or of one run by name, without their events."""
    labels = {"labelSelector": f"{RUN}={run}" if run else RUN}
    itself = {"fieldSelector": f"metadata.name={run}"} if run else labels
    found = [Collection(workloads.path(namespace), itself), Collection(PODS.path(namespace), labels)]
    if workloads.plural == "trainjobs":
        found.append(Collection(JOBSETS.path(namespace), itself))
    if workloads.plural in ("trainjobs", "jobsets"):
        of_jobset = {"labelSelector": f"{_JOBSET_NAME}={run}" if run else _JOBSET_NAME}
        found.append(Collection(JOBS.path(namespace), of_jobset))
    return found


def _is_queued(workload: Manifest) -> bool:
    return QUEUE_LABEL in (workload["metadata"].get("labels") or {})


def _concerns(name: str) -> Callable[[Manifest], bool]:
    """Selects events about the run's workload, or an object whose name begins with the run's."""

    def wanted(event: Manifest) -> bool:
        about = event.get("involvedObject")
        named = str(about.get("name", "")) if isinstance(about, Mapping) else ""
        return named == name or named.startswith(f"{name}-")

    return wanted
