"""Creates a run's objects on a server, or finds those of an earlier submission and continues it.

The order is that of docs/design/kubernetes.md: if this process dies at any moment, one object exists that the next
submission, or `remove_half_submitted`, finds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission, missing_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import RUNTIMES, WORKLOADS, Manifest, resource_of
from stepset.backends.kubernetes.stop import delete
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.pod_changes import ChangePod, with_changed_pods
from stepset.backends.kubernetes.submit.refusals import (
    already_exists,
    misses_runtime,
    namespace_missing,
    no_namespace,
    refusals,
)
from stepset.backends.kubernetes.submit.ssh_keys import with_keys
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.targets.metadata import OWNER_HASH, RUN, SPEC_HASH, SUBMISSION
from stepset.targets.request import RenderRequest

HALF_SUBMITTED_AFTER = 600
"""Seconds after which an incomplete submission counts as abandoned."""

RUNTIME_PATIENCE = 10.0
"""Seconds for which a webhook may not yet know a TrainingRuntime that was created just before its TrainJob."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_STARTED = "started"


@dataclass(frozen=True)
class Submitted:
    """A run that exists on the server; `adopted`: the workload existed before. `warnings` are the server's."""

    workload: Manifest
    adopted: bool
    warnings: tuple[str, ...] = ()


async def submit(
    namespaced: NamespacedClient, request: RenderRequest, target: str, change_pod: ChangePod | None = None
) -> Submitted:
    """Creates a run, or finds the one that the same owner has created before.

    Raises BadInputError if the job is not valid, the server refuses it, or a run of that name has another owner; no
    object remains then. Raises InfrastructureError if the server cannot be reached or denies access.
    """
    # In a thread: a large job takes long to render, and `change_pod` is code of the installation.
    *rest, workload = await asyncio.to_thread(_rendered, request, target, change_pod)
    runtimes = [each for each in rest if each["kind"] == "TrainingRuntime"]
    companions = [each for each in rest if each["kind"] != "TrainingRuntime"]
    submission = _Submission(namespaced, request)
    for runtime in runtimes:
        await submission.make_runtime(runtime)
    made = await submission.make_workload(_marked(workload) if rest else workload, runtimes)
    try:
        for each in companions:
            await submission.make_companion(each, made.workload)
        for runtime in runtimes:
            await namespaced.client.patch(namespaced.path_of(runtime), _owned({}, made.workload, done=True))
    except StepsetError:
        if not made.adopted:
            await delete(namespaced, made.workload)
        raise
    await submission.complete(made.workload)
    return made


def _rendered(request: RenderRequest, target: str, change_pod: ChangePod | None) -> list[Manifest]:
    from stepset.targets.render import render

    rendered: list[Manifest] = list(render(request, target))
    return rendered if change_pod is None else [with_changed_pods(each, change_pod) for each in rendered]


class _Submission:
    """The submission of one run."""

    def __init__(self, namespaced: NamespacedClient, request: RenderRequest) -> None:
        self._namespaced, self._request = namespaced, request
        self._mapper = FieldMapper(request.job, request.plan)

    async def make_runtime(self, runtime: Manifest) -> None:
        reply = await self._namespaced.create(_marked(runtime))
        if not already_exists(reply):
            self._check(reply, runtime)

    async def make_workload(self, workload: Manifest, runtimes: Sequence[Manifest]) -> Submitted:
        reply = await (
            create_after_runtime(self._namespaced, workload) if runtimes else self._namespaced.create(workload)
        )
        if already_exists(reply):
            return Submitted(await self._adopted(workload), adopted=True)
        try:
            self._check(reply, workload)
        except StepsetError:
            for runtime in runtimes:
                await _delete_unowned(self._namespaced, runtime)
            raise
        return Submitted(reply.body, adopted=False, warnings=reply.warnings)

    async def make_companion(self, manifest: Manifest, workload: Manifest) -> None:
        wanted = {**manifest, "metadata": _owned(manifest["metadata"], workload)["metadata"]}
        reply = await self._namespaced.create(with_keys(wanted))
        if not already_exists(reply):
            self._check(reply, manifest)
            return
        # The object is from an interrupted submission of this run, or from an earlier run of the name that is being
        # deleted. An existing Secret, which the account may not read, is kept: its keys are as good as new ones.
        path = self._namespaced.path_of(manifest)
        if manifest["kind"] == "Secret":
            self._check(await self._namespaced.client.patch(path, _owned({}, workload)), manifest)
            return
        existing = await self._namespaced.client.get(path)
        if existing.accepted:
            about = existing.body["metadata"]
            if (about.get("labels") or {}).get(RUN) != self._request.run:
                raise BadInputError(
                    f"name: {manifest['kind']} {manifest['metadata']['name']} exists and belongs to no run of that"
                    " name; choose another name for the run"
                )
            owners = about.get("ownerReferences") or ()
            if owners and owners[0]["uid"] == workload["metadata"]["uid"]:
                return
            await self._namespaced.client.delete(path, {"preconditions": {"uid": about["uid"]}})
        self._check(await self._namespaced.create(wanted), manifest)

    async def complete(self, workload: Manifest) -> None:
        """Marks the submission as complete."""
        if SUBMISSION in (workload["metadata"].get("labels") or {}):
            await self._namespaced.client.patch(
                self._namespaced.path_of(workload), {"metadata": {"labels": {SUBMISSION: None}}}
            )

    async def _adopted(self, workload: Manifest) -> Manifest:
        """Returns the existing workload of the name if it has the same owner."""
        run, owner = self._request.run, self._request.owner
        reply = await self._namespaced.client.get(self._namespaced.path_of(workload))
        if reply.status == 404:
            raise InfrastructureError(f"run {run} existed and was deleted meanwhile; try again")
        self._check(reply, workload)
        found = reply.body["metadata"]
        current_owner = (found.get("labels") or {}).get(OWNER_HASH)
        if found.get("deletionTimestamp"):
            raise InfrastructureError(f"run {run} is being deleted; try again when it is deleted")
        if owner is None or current_owner != owner:
            state = "is owned by another caller" if current_owner else "has no owner, so it cannot be continued"
            raise BadInputError(f"name: run {run} exists already and {state}; choose another name, or delete it")
        if (found.get("annotations") or {}).get(SPEC_HASH) != self._request.spec_hash:
            raise BadInputError(
                f"name: run {run} exists already, of the same caller but with another job; give the run another name,"
                f" or delete it: kubectl delete {resource_of(workload).plural} {run} -n {self._namespaced.namespace}"
            )
        return reply.body

    def _check(self, reply: Reply, manifest: Manifest) -> None:
        if reply.accepted:
            return
        if no_namespace(reply):
            raise BadInputError(namespace_missing(self._namespaced.namespace))
        if lacks_permission(reply):
            raise missing_permission(reply, self._namespaced.namespace)
        found = list(refusals(reply, manifest, self._mapper))
        raise BadInputError(*(found or [f"{manifest['kind']} {manifest['metadata']['name']}: exists already"]))


async def create_after_runtime(
    namespaced: NamespacedClient, trainjob: Manifest, patience: float = RUNTIME_PATIENCE
) -> Reply:
    """Creates a TrainJob right after its TrainingRuntime; returns the server's last reply.

    Trainer's and Kueue's webhooks look the runtime up in a cache, and refuse a TrainJob whose runtime is not in the
    cache yet. This function retries after such refusals for `patience` seconds.
    """
    until, pause = time.monotonic() + patience, _FIRST_PAUSE
    reply = await namespaced.create(trainjob)
    while misses_runtime(reply, trainjob) and time.monotonic() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        reply = await namespaced.create(trainjob)
    return reply


async def remove_half_submitted(namespaced: NamespacedClient, target: str, now: float) -> list[str]:
    """Deletes the objects of abandoned submissions and returns the runs' names; `now`: seconds since the epoch."""
    removed = []
    for resource in (WORKLOADS[target], RUNTIMES) if target == "trainjob" else (WORKLOADS[target],):
        reply = await namespaced.client.get(namespaced.all(resource), {"labelSelector": f"{SUBMISSION}={_STARTED}"})
        for each in (reply.body.get("items") or ()) if reply.accepted else ():
            metadata = each["metadata"]
            if now - datetime.fromisoformat(metadata["creationTimestamp"]).timestamp() < HALF_SUBMITTED_AFTER:
                continue
            options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
            await namespaced.client.delete(namespaced.one(resource, metadata["name"]), options)
            removed.append(str(metadata["name"]))
    return removed


async def _delete_unowned(namespaced: NamespacedClient, manifest: Manifest) -> None:
    path = namespaced.path_of(manifest)
    existing = await namespaced.client.get(path)
    if existing.accepted and not existing.body["metadata"].get("ownerReferences"):
        await namespaced.client.delete(path, {"preconditions": {"uid": existing.body["metadata"]["uid"]}})


def _marked(manifest: Manifest) -> dict[str, Any]:
    """Returns a manifest with the label of an incomplete submission."""
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), SUBMISSION: _STARTED}
    return {**manifest, "metadata": {**metadata, "labels": labels}}


def _owned(metadata: Manifest, workload: Manifest, *, done: bool = False) -> dict[str, Any]:
    """Returns `metadata` with the workload as owner, to be deleted with it; `done` also removes `_marked`'s label."""
    about = workload["metadata"]
    owner = {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": about["name"],
        "uid": about["uid"],
        # Many clusters (OpenShift) require an extra permission to block an owner's deletion.
        "blockOwnerDeletion": False,
    }
    labels = {"labels": {SUBMISSION: None}} if done else {}
    return {"metadata": {**metadata, **labels, "ownerReferences": [owner]}}
