"""Finds runs of all kinds of workloads by name, and reads their current state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from stepset.backends.kubernetes.api.client import gather
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import FORBIDDEN, GONE, NOT_FOUND, RefusedError, Reply
from stepset.backends.kubernetes.api.resources import WORKLOADS, Manifest, Resource, resource_of, target_of
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod, may_hold
from stepset.backends.kubernetes.watch.pages import read_page
from stepset.backends.kubernetes.watch.queue_position import QueuePositions
from stepset.backends.kubernetes.watch.selectors import Collection, of_kind, of_run
from stepset.errors import InfrastructureError, RunNotFoundError
from stepset.run_status import RunStatus
from stepset.targets.metadata import JOB, OWNER_HASH, RUN
from stepset.unstructured import part, text
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import is_run, name_of, run_of, uid_of
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.workload import read_workload, verdict_of
from stepset.watch.list_watch import ListWatch

_log = logging.getLogger(__name__)

RunKey = tuple[str, str]
"""The namespace and the name of a run."""

_ATTEMPTS = 5
"""Attempts to complete a list whose pages expire or that has no resourceVersion; backoff separates them."""


async def find(namespaced: NamespacedClient, name: str, targets: Sequence[str] = tuple(WORKLOADS)) -> Manifest:
    """Returns the workload of a run, or of a job's newest run; `targets` are the kinds of workload to look up.

    Raises RunNotFoundError if there is none, InfrastructureError if the server cannot be reached or denies access to
    all kinds.
    """
    kinds = [WORKLOADS[target] for target in targets]
    answers = await gather(*(namespaced.client.get(namespaced.one(kind, name)) for kind in kinds))
    for kind, reply in zip(kinds, answers, strict=True):
        if reply.accepted and is_run(reply.body):
            return _with_kind(reply.body, kind)
    of_job = await gather(
        *(namespaced.client.get(namespaced.all(kind), {"labelSelector": f"{JOB}={name}"}) for kind in kinds)
    )
    found = [
        _with_kind(each, kind)
        for kind, reply in zip(kinds, of_job, strict=True)
        for each in _items(reply)
        if is_run(each)
    ]
    if found:
        return max(found, key=lambda each: (str(each["metadata"]["creationTimestamp"]), str(each["metadata"]["name"])))
    await _check_access(namespaced, kinds, answers)
    raise RunNotFoundError(
        f"run {name!r} is not in namespace {namespaced.namespace}; see 'stepset list --backend kubernetes --namespace"
        f" {namespaced.namespace}'"
    )


async def find_owned(
    namespaced: NamespacedClient, owner: str, targets: Sequence[str] = tuple(WORKLOADS)
) -> list[Manifest]:
    """Returns the workloads of all runs with this owner; the other arguments and the errors are those of `find`."""
    kinds = [WORKLOADS[target] for target in targets]
    query = {"labelSelector": f"{OWNER_HASH}={owner}"}
    replies = await gather(*(namespaced.client.get(namespaced.all(kind), query) for kind in kinds))
    await _check_access(namespaced, kinds, replies)
    return [
        _with_kind(each, kind)
        for kind, reply in zip(kinds, replies, strict=True)
        for each in _items(reply)
        if is_run(each)
    ]


async def read_run(namespaced: NamespacedClient, workload: Manifest, now: float) -> RunStatus:
    """Returns the state of a run; `now` is in seconds since the epoch."""
    if (verdict := verdict_of(workload)) is not None:
        return verdict
    objects = await read_objects(namespaced, workload)
    await QueuePositions(namespaced).read([objects])
    return status_of(objects, Reports(), now)


async def read_objects(namespaced: NamespacedClient, workload: Manifest) -> RunObjects:
    """Returns the objects of a run; if the run no longer exists, only `workload`, marked as deleted."""
    about, namespaced = workload["metadata"], namespaced.of_kind(resource_of(workload))
    objects = RunObjects(str(about["name"]), str(about["uid"]))
    for changes in await gather(*(listed(namespaced, each) for each in of_run(namespaced.namespace, workload))):
        for change in changes:
            _see(objects, change)
    if objects.workload is None:
        objects.see(Change("DELETED", workload, observed=False))
    return objects


async def pods_with_logs(
    namespaced: NamespacedClient, workload: Manifest, sources: frozenset[str] | None
) -> list[LogPod]:
    """Returns the pods of a run whose logs may hold lines of `sources`, in the order of their attempts.

    Raises InfrastructureError if the account may not read the pods.
    """
    about, known = workload["metadata"], read_workload(workload)
    namespaced = namespaced.of_kind(resource_of(workload))
    objects = RunObjects(str(about["name"]), str(about["uid"]))
    collections = of_kind(namespaced.namespace, resource_of(workload), str(about["name"]))
    changes = [each for found in await gather(*(listed(namespaced, each) for each in collections)) for each in found]
    for change in changes:
        _see(objects, change)
    found = [each.object for each in changes if each.object["kind"] == "Pod" and objects.owns(uid_of(each.object))]
    ranks = known.ranks if known else {}
    pods = [pod for pod in map(log_pod, found) if pod.started and may_hold(pod, sources, ranks)]
    return sorted(pods, key=lambda pod: (pod.attempt, pod.group, pod.index))


async def read_all(
    namespaced: NamespacedClient, now: float, targets: Sequence[str] = tuple(WORKLOADS)
) -> list[tuple[Manifest, RunStatus]]:
    """Returns every run in a namespace: its workload, and its state; `targets` and the errors are those of `find`.

    A client whose namespace is empty reads the runs in all namespaces.

    The number of requests does not depend on the number of runs.
    """
    kinds = [WORKLOADS[target] for target in targets]
    replies = await gather(
        *(namespaced.client.get(namespaced.all(kind), {"labelSelector": RUN, "limit": "1"}) for kind in kinds)
    )
    found: dict[RunKey, tuple[Manifest, RunStatus]] = {}
    for kind, reply in zip(kinds, replies, strict=True):
        if any(map(is_run, _items(reply))):
            found = {**await _runs_of_kind(namespaced, kind, now), **found}
    await _check_access(namespaced, kinds, replies)
    return list(found.values())


async def _runs_of_kind(
    namespaced: NamespacedClient, kind: Resource, now: float
) -> dict[RunKey, tuple[Manifest, RunStatus]]:
    namespaced = namespaced.of_kind(kind)
    objects: dict[RunKey, RunObjects] = {}
    workloads: dict[RunKey, Manifest] = {}
    collections = of_kind(namespaced.namespace, kind)
    for index, changes in enumerate(await gather(*(listed(namespaced, each) for each in collections))):
        for change in changes:
            run, about = run_of(change.object), part(change.object, "metadata")
            key = text(about, "namespace"), run
            if index == 0:
                if not is_run(change.object) or text(about, "name") != run:
                    continue
                workloads[key] = change.object
                objects[key] = RunObjects(run, uid_of(change.object))
            if key in workloads:
                _see(objects[key], change)
    return {
        key: (_with_kind(each, kind), verdict_of(each) or status_of(objects[key], Reports(), now))
        for key, each in workloads.items()
    }


async def listed(namespaced: NamespacedClient, collection: Collection) -> list[Change]:
    """Returns the objects of a collection.

    Returns an empty list if the server does not serve the kind, or if the account may not read a collection that is not
    needed. Raises InfrastructureError for every other refusal, and for a list that could not be completed in several
    attempts.
    """
    list_watch, failures = ListWatch(collection.wanted), 0
    while True:
        try:
            changes = await read_page(namespaced.client, collection, list_watch)
            if list_watch.listed_once:
                return changes
            continue
        except RefusedError as error:
            if error.reply.status != GONE:  # 410: the server no longer keeps the list
                return _without(namespaced, collection, error)
            list_watch.expired()
            failure: Exception = error
        except ValueError as error:
            failure = error
        failures += 1
        if failures >= _ATTEMPTS:
            raise InfrastructureError(f"{collection.path} cannot be listed: {failure}; try again") from failure
        await asyncio.sleep(list_watch.failed())


def _without(namespaced: NamespacedClient, collection: Collection, refused: RefusedError) -> list[Change]:
    """Returns no objects if a state can be computed without the refused list; otherwise raises InfrastructureError."""
    if refused.reply.status == NOT_FOUND or (refused.reply.status == FORBIDDEN and not collection.needed):
        return []
    if lacks_permission(refused.reply):
        raise namespaced.missing_permission(refused.reply)
    raise InfrastructureError(
        f"{collection.path} cannot be listed: {refused}; contact the cluster's administrator"
    ) from refused


def _see(objects: RunObjects, change: Change) -> None:
    """Adds an object to a run; omits one that cannot be read, with a warning."""
    try:
        objects.see(change)
    except Exception as error:  # noqa: BLE001  # one object must not hide the others
        _log.warning("%s cannot be read and is ignored: %r", name_of(change.object), error)


def _with_kind(workload: Manifest, kind: Resource) -> Manifest:
    """Returns an item of a list with its apiVersion and kind, which lists omit."""
    names = {"jobs": "Job", "jobsets": "JobSet", "trainjobs": "TrainJob", "statefulsets": "StatefulSet"}
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {"apiVersion": version, "kind": names[kind.plural], **workload}


def _items(reply: Reply) -> Sequence[Manifest]:
    return reply.body.get("items") or () if reply.accepted else ()


async def _check_access(namespaced: NamespacedClient, kinds: Sequence[Resource], replies: Sequence[Reply]) -> None:
    """Raises if the account may read none of the kinds; some kinds may be missing or denied.

    A server denies access to a kind before it checks whether it serves the kind. The command in the error grants access
    to the kinds that the server serves.
    """
    hidden = {kind: reply for kind, reply in zip(kinds, replies, strict=True) if lacks_permission(reply)}
    if not hidden or any(reply.accepted or reply.lacks_object for reply in replies):
        return
    known = await gather(*(namespaced.client.get(kind.discovery) for kind in hidden))
    served = [kind for kind, reply in zip(hidden, known, strict=True) if reply.status != NOT_FOUND] or list(hidden)
    targets = [target for target in map(target_of, served) if target is not None]
    raise namespaced.granting(*targets).missing_permission(hidden[served[0]])
