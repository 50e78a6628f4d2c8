"""Creates a run's objects on a server, or finds those of an earlier submission and continues it.

The order is that of docs/design/kubernetes.md: if this process dies at any moment, one object exists that the next
submission, or `abandoned.remove_half_submitted`, finds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply, UnreachableError
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.stop import any_pods, delete, exists_with_uid
from stepset.backends.kubernetes.submit.access_review import grant_of
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.generated import with_generated_values
from stepset.backends.kubernetes.submit.pod_changes import ChangePod, with_changed_pods
from stepset.backends.kubernetes.submit.refusals import (
    already_exists,
    misses_runtime,
    namespace_missing,
    no_namespace,
    refusals,
)
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.targets.metadata import OWNER_HASH, RUN, SPEC_HASH, SUBMISSION
from stepset.targets.request import RenderRequest

RUNTIME_TIMEOUT = 10.0
"""Seconds for which a webhook may not yet know a TrainingRuntime that was created just before its TrainJob."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
STARTED = "started"
"""The value of the label SUBMISSION of a workload whose submission is not complete."""


@dataclass(frozen=True)
class Submitted:
    """A run on the server. `adopted` is whether the workload existed before; `warnings` are the server's."""

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
    # ConfigMaps last: a pod that mounts one does not start before the other objects exist.
    companions = sorted((each for each in rest if each not in runtimes), key=lambda each: each["kind"] == "ConfigMap")
    submission = _Submission(namespaced, request, target)
    uids = [await submission.make_runtime(runtime, workload) for runtime in runtimes]
    made = await submission.make_workload(_marked(workload) if rest else workload, runtimes)
    if made.adopted and rest and SUBMISSION not in (made.workload["metadata"].get("labels") or {}):
        return made  # all its objects exist
    try:
        # Another submission may have replaced a runtime. This is checked before the ConfigMaps are created, because
        # no pod starts without them.
        owned = [await submission.own_runtime(*each, made.workload) for each in zip(runtimes, uids, strict=True)]
        await submission.make_companions(companions, made)
    except StepsetError as error:
        # If the server refuses the job, no object remains. After a lost connection, a retry continues the submission.
        if not made.adopted and not isinstance(error, UnreachableError):
            await delete(namespaced, made.workload)
        raise
    return replace(made, warnings=(*made.warnings, *filter(None, owned), *await submission.complete(made.workload)))


def _rendered(request: RenderRequest, target: str, change_pod: ChangePod | None) -> list[Manifest]:
    from stepset.targets.render import render

    rendered: list[Manifest] = list(render(request, target))
    return rendered if change_pod is None else [with_changed_pods(each, change_pod) for each in rendered]


class _Submission:
    """The submission of one run."""

    def __init__(self, namespaced: NamespacedClient, request: RenderRequest, target: str) -> None:
        self._namespaced = replace(namespaced, grant=grant_of(request.job, target, namespaced.grant.backend))
        self._request = request
        self._mapper = FieldMapper(request.job, request.plan)

    async def make_runtime(self, runtime: Manifest, workload: Manifest) -> str:
        """Creates a TrainingRuntime; returns its uid. Replaces an existing one unless its TrainJob exists.

        Raises BadInputError if a runtime of that name exists without the label of this run.
        """
        reply = await self._namespaced.create(wanted := _marked(runtime))
        if not already_exists(reply):
            self._check(reply, runtime)
            return str(reply.body["metadata"]["uid"])
        # Read the runtime first: `_recreate` then deletes nothing if another submission replaces the runtime meanwhile.
        existing = await self._existing(wanted)
        found = await self._namespaced.client.get(self._namespaced.path_of(workload))
        if existing and found.status != NOT_FOUND:
            return str(existing["uid"])
        # Without the workload, nothing proves that an earlier submission of this run and job created the runtime.
        return await self._recreate(wanted, existing)

    async def own_runtime(self, runtime: Manifest, uid: str, workload: Manifest) -> str:
        """Makes the workload the owner of the runtime with that uid; returns a warning if the server refuses.

        Raises InfrastructureError if the runtime has another uid: then the run would execute the job of another
        submission or account.
        """
        body, name = _owned({"uid": uid}, workload, done=True), runtime["metadata"]["name"]
        reply = await self._namespaced.client.patch(self._namespaced.path_of(runtime), body)
        if reply.accepted:
            return ""
        if not exists_with_uid(reply):
            raise InfrastructureError(
                f"TrainingRuntime {name} was replaced while run {self._request.run} was submitted; choose another name"
                " for the run, or try again"
            )
        return f"TrainingRuntime {name} stays when the run is deleted, because it cannot be patched: {reply.message}"

    async def make_workload(self, workload: Manifest, runtimes: Sequence[Manifest]) -> Submitted:
        if runtimes:
            await self._check_predecessor(workload)
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

    async def _check_predecessor(self, trainjob: Manifest) -> None:
        """Raises InfrastructureError if pods of a deleted TrainJob of this name have not ended.

        They would have the same host names as the pods of the new one (`stop.delete`).
        """
        existing = await self._namespaced.client.get(self._namespaced.path_of(trainjob))
        if existing.status == NOT_FOUND and await any_pods(self._namespaced, self._request.run):
            raise InfrastructureError(f"run {self._request.run} is being deleted; try again when it is deleted")

    async def make_companions(self, manifests: Sequence[Manifest], made: Submitted) -> None:
        """Creates the objects that the workload owns, ConfigMaps last."""
        last = next((each for each in manifests if each["kind"] == "ConfigMap"), None)
        for manifest in manifests:
            owned = {**manifest, "metadata": _owned(manifest["metadata"], made.workload)["metadata"]}
            wanted = with_generated_values(owned)
            reply = await self._namespaced.create(wanted)
            if not already_exists(reply):
                self._check(reply, manifest)
            # The object is from an interrupted submission of this run, or from an earlier run of the name that is being
            # deleted; or another account has created it.
            elif manifest["kind"] == "Secret":
                await self._replace_secret(wanted, made, last)
            else:
                await self._replace(wanted, made.workload["metadata"]["uid"])

    async def _replace(self, wanted: Manifest, owner: str) -> None:
        """Replaces an object of this run, unless the object with the uid `owner` owns it.

        Raises BadInputError if the existing object does not have the label of this run.
        """
        existing = await self._existing(wanted)
        if not existing or _owner_of(existing) != owner:
            await self._recreate(wanted, existing)

    async def _recreate(self, wanted: Manifest, existing: Manifest | None) -> str:
        """Creates an object; returns its uid. First deletes the one with the metadata `existing`, if unchanged."""
        if existing:
            unchanged = {"uid": existing["uid"], "resourceVersion": existing.get("resourceVersion")}
            await self._namespaced.client.delete(self._namespaced.path_of(wanted), {"preconditions": unchanged})
        self._check(reply := await self._namespaced.create(wanted), wanted)
        return str(reply.body["metadata"]["uid"])

    async def _existing(self, wanted: Manifest) -> Manifest | None:
        """Returns the metadata of an object of this run; None if it does not exist. Raises as `_replace` does."""
        reply = await self._namespaced.client.get(self._namespaced.path_of(wanted))
        if not reply.accepted:
            return None
        about: Manifest = reply.body["metadata"]
        if (about.get("labels") or {}).get(RUN) != self._request.run:
            raise BadInputError(
                f"name: {wanted['kind']} {wanted['metadata']['name']} exists and does not belong to run"
                f" {self._request.run}; choose another name for the run"
            )
        return about

    async def _replace_secret(self, wanted: Manifest, made: Submitted, next_created: Manifest | None) -> None:
        """Replaces the Secret of an interrupted submission, whose keys this account may not read, before pods use it.

        `next_created` is the first ConfigMap, which a submission creates after the Secret. If the run owns it, an
        earlier submission has created both and pods may use the keys, so the Secret is kept. Refuses a Secret that
        existed before the run's first submission, because another account may know its keys.
        """
        name, uid = wanted["metadata"]["name"], made.workload["metadata"]["uid"]
        if not made.adopted:
            raise BadInputError(
                f"name: Secret {name} exists, and the run would use its keys; delete it, or choose another name for the"
                " run"
            )
        if next_created is not None and _owner_of(await self._existing(next_created) or {}) == uid:
            return
        await self._namespaced.client.delete(self._namespaced.path_of(wanted), {})
        self._check(await self._namespaced.create(wanted), wanted)

    async def complete(self, workload: Manifest) -> tuple[str, ...]:
        """Marks the submission as complete; returns a warning if the server refuses."""
        if SUBMISSION not in (workload["metadata"].get("labels") or {}):
            return ()
        done = {"metadata": {"uid": workload["metadata"]["uid"], "labels": {SUBMISSION: None}}}
        reply = await self._namespaced.client.patch(self._namespaced.path_of(workload), done)
        if reply.accepted:
            return ()
        return (f"the run keeps the label {SUBMISSION}, because it cannot be patched: {reply.message}",)

    async def _adopted(self, workload: Manifest) -> Manifest:
        """Returns the existing workload of that name; raises an error if its owner or its job differs."""
        run, owner = self._request.run, self._request.owner
        reply = await self._namespaced.client.get(self._namespaced.path_of(workload))
        if reply.status == NOT_FOUND:
            raise InfrastructureError(f"run {run} was deleted while it was submitted again; try again")
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
                f"name: run {run} exists already: the same caller created it for another job; choose another name,"
                f" or delete it: kubectl delete {resource_of(workload).plural} {run} -n {self._namespaced.namespace}"
            )
        return reply.body

    def _check(self, reply: Reply, manifest: Manifest) -> None:
        if reply.accepted:
            return
        if no_namespace(reply):
            raise BadInputError(namespace_missing(self._namespaced.namespace))
        if lacks_permission(reply):
            raise self._namespaced.missing_permission(reply)
        found = list(refusals(reply, manifest, self._mapper))
        raise BadInputError(*(found or [f"{manifest['kind']} {manifest['metadata']['name']}: exists already"]))


async def create_after_runtime(
    namespaced: NamespacedClient, trainjob: Manifest, timeout: float = RUNTIME_TIMEOUT
) -> Reply:
    """Creates a TrainJob right after its TrainingRuntime; returns the server's last reply.

    Trainer's and Kueue's webhooks look the runtime up in a cache, and refuse a TrainJob whose runtime is not in the
    cache yet. This function retries after such refusals for `timeout` seconds.
    """
    until, pause = time.monotonic() + timeout, _FIRST_PAUSE
    reply = await namespaced.create(trainjob)
    while misses_runtime(reply, trainjob) and time.monotonic() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        reply = await namespaced.create(trainjob)
    return reply


async def _delete_unowned(namespaced: NamespacedClient, manifest: Manifest) -> None:
    path = namespaced.path_of(manifest)
    existing = await namespaced.client.get(path)
    if existing.accepted and not existing.body["metadata"].get("ownerReferences"):
        await namespaced.client.delete(path, {"preconditions": {"uid": existing.body["metadata"]["uid"]}})


def _owner_of(metadata: Manifest) -> str:
    """Returns the uid of an object's first owner; empty if it has none."""
    owners = metadata.get("ownerReferences") or ()
    return str(owners[0]["uid"]) if owners else ""


def _marked(manifest: Manifest) -> dict[str, Any]:
    """Returns a manifest with the label of an incomplete submission."""
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), SUBMISSION: STARTED}
    return {**manifest, "metadata": {**metadata, "labels": labels}}


def _owned(metadata: Manifest, workload: Manifest, *, done: bool = False) -> dict[str, Any]:
    """Returns `{"metadata": ...}` with the workload as owner; `done` also removes the label of `_marked`."""
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
