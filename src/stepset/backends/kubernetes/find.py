"""Finds runs of all kinds of workloads by name, and reads their current state."""

from __future__ import annotations

from collections.abc import Sequence

from stepset.backends.kubernetes.api.client import gather
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission, missing_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import WORKLOADS, Manifest, Resource
from stepset.backends.kubernetes.watch.queue_position import QueuePositions
from stepset.backends.kubernetes.watch.selectors import Collection, of_kind, of_run
from stepset.errors import RunNotFoundError
from stepset.targets.metadata import JOB, RUN
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.decoding import decode_list
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.list_watch import ListWatch
from stepset.watch.state import RunStatus


async def find(namespaced: NamespacedClient, name: str, targets: Sequence[str] = tuple(WORKLOADS)) -> Manifest:
    """Returns the workload of a run, or of a job's newest run, among the kinds `targets`.

    Raises RunNotFoundError if there is none, InfrastructureError if the server cannot be reached or denies access to
    all kinds.
    """
    kinds = [WORKLOADS[target] for target in targets]
    answers = await gather(*(namespaced.client.get(namespaced.one(kind, name)) for kind in kinds))
    for kind, reply in zip(kinds, answers, strict=True):
        if reply.accepted and _is_run(reply.body):
            return _with_kind(reply.body, kind)
    of_job = await gather(
        *(namespaced.client.get(namespaced.all(kind), {"labelSelector": f"{JOB}={name}"}) for kind in kinds)
    )
    found = [
        _with_kind(each, kind)
        for kind, reply in zip(kinds, of_job, strict=True)
        for each in _items(reply)
        if _is_run(each)
    ]
    if found:
        return max(found, key=lambda each: (str(each["metadata"]["creationTimestamp"]), str(each["metadata"]["name"])))
    _check_access(namespaced, answers)
    raise RunNotFoundError(
        f"run {name!r} is not in namespace {namespaced.namespace}; see 'stepset list --backend kubernetes --namespace"
        f" {namespaced.namespace}'"
    )


async def read_run(namespaced: NamespacedClient, workload: Manifest, now: float) -> RunStatus:
    """Returns the state of a run; `now` is in seconds since the epoch."""
    if (verdict := verdict_of(workload)) is not None:
        return verdict
    objects = await read_objects(namespaced, workload)
    await QueuePositions(namespaced).read([objects])
    return status_of(objects, Reports(), now)


async def read_objects(namespaced: NamespacedClient, workload: Manifest) -> RunObjects:
    """Returns the objects of a run; if the run no longer exists, `workload` marked as deleted."""
    about = workload["metadata"]
    objects = RunObjects(str(about["name"]), str(about["uid"]))
    for changes in await gather(*(_listed(namespaced, each) for each in of_run(namespaced.namespace, workload))):
        for change in changes:
            objects.see(change)
    if objects.workload is None:
        objects.see(Change("DELETED", workload, witnessed=False))
    return objects


async def read_all(
    namespaced: NamespacedClient, now: float, targets: Sequence[str] = tuple(WORKLOADS)
) -> list[RunStatus]:
    """Returns the state of every run in a namespace, in few requests; arguments and errors are those of `find`."""
    kinds = [WORKLOADS[target] for target in targets]
    replies = await gather(
        *(namespaced.client.get(namespaced.all(kind), {"labelSelector": RUN, "limit": "1"}) for kind in kinds)
    )
    found: dict[str, RunStatus] = {}
    for kind, reply in zip(kinds, replies, strict=True):
        if any(map(_is_run, _items(reply))):
            found = {**await _runs_of_kind(namespaced, kind, now), **found}
    _check_access(namespaced, replies)
    return list(found.values())


async def _runs_of_kind(namespaced: NamespacedClient, kind: Resource, now: float) -> dict[str, RunStatus]:
    objects: dict[str, RunObjects] = {}
    workloads: dict[str, Manifest] = {}
    listed = await gather(*(_listed(namespaced, collection) for collection in of_kind(namespaced.namespace, kind)))
    for index, changes in enumerate(listed):
        for change in changes:
            labels = change.object["metadata"].get("labels") or {}
            run = str(labels.get(RUN) or labels.get("jobset.sigs.k8s.io/jobset-name", ""))
            if index == 0:
                if not _is_run(change.object):
                    continue
                workloads[run] = change.object
            if run in workloads:
                objects.setdefault(run, RunObjects()).see(change)
    return {run: verdict_of(each) or status_of(objects[run], Reports(), now) for run, each in workloads.items()}


async def _listed(namespaced: NamespacedClient, collection: Collection) -> list[Change]:
    list_watch, changes = ListWatch(collection.wanted), list[Change]()
    while not list_watch.listed_once:
        query = {**collection.selectors, **list_watch.next_request().query}
        reply = await namespaced.client.get(collection.path, query, decode_list)
        if not reply.accepted:
            if collection.needed:
                _check_access(namespaced, [reply])
            return []
        changes += list_watch.listed(reply.body)
    return changes


def _is_run(workload: Manifest) -> bool:
    """Whether an object is the workload of a run; not the JobSet of a TrainJob, the Job of a JobSet or another's."""
    metadata = workload["metadata"]
    controlled = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    return RUN in (metadata.get("labels") or {}) and not controlled


def _with_kind(workload: Manifest, kind: Resource) -> Manifest:
    """Returns an item of a list with its apiVersion and kind, which lists omit."""
    names = {"jobs": "Job", "jobsets": "JobSet", "trainjobs": "TrainJob", "statefulsets": "StatefulSet"}
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {"apiVersion": version, "kind": names[kind.plural], **workload}


def _items(reply: Reply) -> Sequence[Manifest]:
    return reply.body.get("items") or () if reply.accepted else ()


def _check_access(namespaced: NamespacedClient, replies: Sequence[Reply]) -> None:
    """Raises if the account may read none of the kinds; some kinds may be missing or denied."""
    hidden = [reply for reply in replies if lacks_permission(reply)]
    if hidden and not any(reply.accepted or reply.lacks_object for reply in replies):
        raise missing_permission(hidden[-1], namespaced.namespace)
