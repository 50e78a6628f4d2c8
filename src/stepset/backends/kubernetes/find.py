"""Runs found again by name, whatever they became, and read as they are at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepset.backends.kubernetes.client import Reply
from stepset.backends.kubernetes.refusals import may_not, missing_right
from stepset.backends.kubernetes.resources import Resource
from stepset.backends.kubernetes.scope import of_all_runs, of_run
from stepset.backends.kubernetes.site import WORKLOADS, Site
from stepset.backends.kubernetes.watcher import Collection
from stepset.errors import RunNotFoundError
from stepset.targets.identity import JOB, RUN
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.feed import Feed
from stepset.watch.state import RunStatus

Manifest = Mapping[str, Any]


def find(site: Site, name: str, targets: Sequence[str] = tuple(WORKLOADS)) -> Manifest:
    """The workload of a run.

    Args:
        site: where.
        name: a run's name, or a job's: its newest run.
        targets: what it may have become.

    Raises:
        RunNotFoundError: there is none.
        InfrastructureError: the server cannot be asked, or shows nothing to whoever asks.
    """
    kinds = [WORKLOADS[target] for target in targets]
    answers = [(kind, site.connection.get(site.one(kind, name))) for kind in kinds]
    for kind, reply in answers:
        if reply.accepted and _is_run(reply.body):
            return _with_kind(reply.body, kind)
    found = [
        _with_kind(each, kind)
        for kind in kinds
        for each in _items(site.connection.get(site.all(kind), {"labelSelector": f"{JOB}={name}"}))
        if _is_run(each)
    ]
    if found:
        return max(found, key=lambda each: (str(each["metadata"]["creationTimestamp"]), str(each["metadata"]["name"])))
    _check_sight(site, [reply for _, reply in answers])
    raise RunNotFoundError(
        f"run {name!r} is not in namespace {site.namespace}; see 'stepset list --backend kubernetes --namespace"
        f" {site.namespace}'"
    )


def read_run(site: Site, workload: Manifest, now: float) -> RunStatus:
    """Where a run is.

    Args:
        site: where.
        workload: as `find` gave it.
        now: seconds since the epoch.
    """
    return verdict_of(workload) or status_of(read_objects(site, of_run(site, workload)), Reports(), now)


def read_objects(site: Site, collections: Sequence[Collection]) -> RunObjects:
    """What a run's collections hold."""
    objects = RunObjects()
    for collection in collections:
        for change in _listed(site, collection):
            objects.see(change)
    return objects


def read_all(site: Site, now: float, targets: Sequence[str] = tuple(WORKLOADS)) -> list[RunStatus]:
    """Every run in a namespace, from a handful of requests.

    Args:
        site: where.
        now: seconds since the epoch.
        targets: what they may have become.

    Raises:
        InfrastructureError: the server cannot be asked, or shows nothing to whoever asks.
    """
    found: dict[str, RunStatus] = {}
    replies = []
    for target in targets:
        kind = WORKLOADS[target]
        reply = site.connection.get(site.all(kind), {"labelSelector": RUN, "limit": "1"})
        replies.append(reply)
        if any(map(_is_run, _items(reply))):
            found = {**_runs_of_kind(site, kind, now), **found}
    _check_sight(site, replies)
    return list(found.values())


def _runs_of_kind(site: Site, kind: Resource, now: float) -> dict[str, RunStatus]:
    objects: dict[str, RunObjects] = {}
    workloads: dict[str, Manifest] = {}
    for index, collection in enumerate(of_all_runs(site, kind)):
        for change in _listed(site, collection):
            labels = change.object["metadata"].get("labels") or {}
            run = str(labels.get(RUN) or labels.get("jobset.sigs.k8s.io/jobset-name", ""))
            if index == 0:
                if not _is_run(change.object):
                    continue
                workloads[run] = change.object
            if run in workloads:
                objects.setdefault(run, RunObjects()).see(change)
    return {run: verdict_of(each) or status_of(objects[run], Reports(), now) for run, each in workloads.items()}


def _listed(site: Site, collection: Collection) -> Iterator[Any]:
    feed = Feed(collection.wanted)
    while not feed.listed_once:
        reply = site.connection.get(collection.path, {**collection.selectors, **feed.ask().query})
        if not reply.accepted:
            if collection.needed:
                _check_sight(site, [reply])
            return
        yield from feed.listed(reply.body)


def _is_run(workload: Manifest) -> bool:
    """Whether it is a run's object on top: not the JobSet of a TrainJob, the Job of a JobSet or somebody else's."""
    metadata = workload["metadata"]
    controlled = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    return RUN in (metadata.get("labels") or {}) and not controlled


def _with_kind(workload: Manifest, kind: Resource) -> Manifest:
    """An object of a list, which leaves out what kind it is."""
    names = {"jobs": "Job", "jobsets": "JobSet", "trainjobs": "TrainJob", "statefulsets": "StatefulSet"}
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {"apiVersion": version, "kind": names[kind.plural], **workload}


def _items(reply: Reply) -> Sequence[Manifest]:
    return reply.body.get("items") or () if reply.accepted else ()


def _check_sight(site: Site, replies: Sequence[Reply]) -> None:
    """That the server shows anything at all; kinds that it lacks, or hides, are nothing out of the ordinary."""
    hidden = [reply for reply in replies if may_not(reply)]
    if hidden and not any(reply.accepted or _no_such_object(reply) for reply in replies):
        raise missing_right(hidden[-1], site.namespace)


def _no_such_object(reply: Reply) -> bool:
    """Whether the server shows the kind, but has nothing of that name: of a kind that it lacks it names no object."""
    return reply.status == 404 and bool((reply.body.get("details") or {}).get("name"))
