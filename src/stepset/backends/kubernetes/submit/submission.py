"""Creates the objects of a run on a server. Continues interrupted submissions.

The order in which the objects are created is described in docs/design/kubernetes.md. If the process is killed,
this order ensures that the next submission, or `abandoned.remove_half_submitted`, finds at least one of the objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import account_name, lacks_permission
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply, UnreachableError
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.applied import owned_by
from stepset.backends.kubernetes.stop import any_pods, delete, exists_with_uid
from stepset.backends.kubernetes.submit.access_review import grant_of
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.generated import with_generated_values
from stepset.backends.kubernetes.submit.namespaces import namespace_problem
from stepset.backends.kubernetes.submit.pod_changes import ChangePod
from stepset.backends.kubernetes.submit.queues import missing_queue_objects
from stepset.backends.kubernetes.submit.refusals import (
    already_exists,
    misses_runtime,
    namespace_missing,
    no_namespace,
    refusals,
)
from stepset.backends.kubernetes.submit.service_accounts import missing_service_accounts
from stepset.backends.kubernetes.submit.watchers import create_watcher, image_and_placement
from stepset.backends.orphan_policy import OrphanStop
from stepset.backends.run_names import being_deleted, name_taken
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.targets.metadata import OWNER_HASH, RUN, SPEC_HASH, SUBMISSION, SUBMITTED_BY
from stepset.targets.pod_templates import templates_of
from stepset.targets.request import RenderRequest

RUNTIME_TIMEOUT = 10.0
"""Creating a TrainJob is retried for this number of seconds, because a webhook may not know the new TrainingRuntime."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
STARTED = "started"
"""The value of the label SUBMISSION. A workload has this label until the submission is complete."""


@dataclass(frozen=True)
class Submitted:
    """A run on the server.

    `adopted` is true if the workload already existed. `warnings` are the server's warnings.
    """

    workload: Manifest
    adopted: bool
    warnings: tuple[str, ...] = ()


async def create_objects(
    namespaced: NamespacedClient,
    request: RenderRequest,
    objects: Sequence[Manifest],
    target: str,
    change_pod: ChangePod | None = None,
    orphan: OrphanStop | None = None,
) -> Submitted:
    """Creates a run, or finds the run that the same owner has already created. If `orphan` is given, creates a watcher.

    Args:
        objects: the rendered objects of `request`.

    Raises:
        BadInputError: the server refuses the job, or a run with the same name has another owner. Then no object of
            this submission remains.
        InfrastructureError: the server cannot be reached or denies access.
    """
    *rest, workload = objects
    runtimes = [each for each in rest if templates_of(each)]
    # Create the ConfigMaps last. Then a pod with a ConfigMap starts only after all other objects were created.
    companions = sorted((each for each in rest if each not in runtimes), key=lambda each: each["kind"] == "ConfigMap")
    submission = _Submission(namespaced, request, target)
    await submission.check_references((*runtimes, workload))
    workload = await submission.with_account(workload)
    uids = [await submission.make_runtime(runtime, workload) for runtime in runtimes]
    made = await submission.make_workload(_marked(workload) if rest else workload, runtimes)
    # Create the watcher before the ConfigMaps. Then no pod of the run starts before the watcher exists, even if this
    # process is killed.
    if orphan is not None:
        made = await submission.make_watcher(made, (*runtimes, workload)[0], orphan, change_pod)
    if made.adopted and rest and SUBMISSION not in (made.workload["metadata"].get("labels") or {}):
        return made  # an earlier submission has created all objects of the run
    try:
        # Another submission may have replaced a runtime. Check the runtimes before the ConfigMaps are created, because
        # no pod starts without the ConfigMaps.
        owned = [await submission.own_runtime(*each, made.workload) for each in zip(runtimes, uids, strict=True)]
        await submission.make_companions(companions, made)
    except StepsetError as error:
        # If the server refuses the job, delete the objects. If the connection was lost, keep the objects, because a
        # retry continues the submission.
        if not made.adopted and not isinstance(error, UnreachableError):
            await delete(namespaced, made.workload)
        raise
    return replace(made, warnings=(*made.warnings, *filter(None, owned), *await submission.complete(made.workload)))


class _Submission:
    """The submission of one run."""

    def __init__(self, namespaced: NamespacedClient, request: RenderRequest, target: str) -> None:
        self._namespaced = replace(namespaced, grant=grant_of(request.job, target, namespaced.grant.interface))
        self._request = request
        self._mapper = FieldMapper(request.job, request.plan, namespaced.grant.interface)

    async def check_references(self, objects: Sequence[Manifest]) -> None:
        """Checks the service accounts of the pods, and the queue and the priority class of the workload.

        Raises BadInputError if one of these objects does not exist. If the namespace does not exist, the error states
        only this. The last object is the workload. An object is not checked if the client has no permission to read it.
        """
        client, namespace = self._namespaced.client, self._namespaced.namespace
        missing = await missing_service_accounts(client, namespace, objects, self._mapper)
        missing += await missing_queue_objects(client, namespace, objects[-1]["metadata"].get("labels") or {})
        if missing:
            absent = await namespace_problem(client, namespace, self._namespaced.grant.interface)
            raise BadInputError(*([absent] if absent else missing))

    async def with_account(self, workload: Manifest) -> Manifest:
        """Returns the workload with the name of the account as an annotation, if the server reports the name."""
        account = ""
        with suppress(StepsetError):  # the name is only information for users
            account = await account_name(self._namespaced.client)
        if not account:
            return workload
        metadata = workload["metadata"]
        annotations = {**(metadata.get("annotations") or {}), SUBMITTED_BY: account}
        return {**workload, "metadata": {**metadata, "annotations": annotations}}

    async def make_runtime(self, runtime: Manifest, workload: Manifest) -> str:
        """Creates a TrainingRuntime, and returns its uid.

        If the runtime exists and its TrainJob does not, this method replaces the runtime. Raises BadInputError if the
        existing runtime does not have the label of this run.
        """
        reply = await self._namespaced.create(wanted := _marked(runtime))
        if not already_exists(reply):
            await self._check(reply, runtime)
            return str(reply.body["metadata"]["uid"])
        # Read the runtime before the workload. If another submission replaces the runtime after this read, `_recreate`
        # deletes no object.
        existing = await self._existing(wanted)
        found = await self._namespaced.client.get(self._namespaced.path_of(workload))
        if existing and found.status != NOT_FOUND:
            return str(existing["uid"])
        # If the workload does not exist, an earlier submission of another job may have created the runtime.
        return await self._recreate(wanted, existing)

    async def own_runtime(self, runtime: Manifest, uid: str, workload: Manifest) -> str:
        """Makes the workload the owner of the runtime. If the server refuses the request, returns a warning.

        Raises InfrastructureError if the uid of the runtime is not `uid`. A different uid means that another submission
        or account has replaced the runtime, so the run would execute the wrong job.
        """
        body, name = owned_by({"uid": uid, "labels": {SUBMISSION: None}}, workload), runtime["metadata"]["name"]
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
            await self._check(reply, workload)
        except StepsetError:
            for runtime in runtimes:
                await _delete_unowned(self._namespaced, runtime)
            raise
        return Submitted(reply.body, adopted=False, warnings=reply.warnings)

    async def _check_predecessor(self, trainjob: Manifest) -> None:
        """Raises InfrastructureError if pods of a deleted TrainJob with the same name have not terminated.

        The server removes a TrainJob before its pods (`stop.delete`). The old pods and the pods of the new TrainJob
        would have the same host names.
        """
        existing = await self._namespaced.client.get(self._namespaced.path_of(trainjob))
        if existing.status == NOT_FOUND and await any_pods(self._namespaced, self._request.run):
            raise being_deleted(self._request.run)

    async def make_watcher(
        self, made: Submitted, pods_of: Manifest, orphan: OrphanStop, change_pod: ChangePod | None
    ) -> Submitted:
        """Creates the watcher of a run. `pods_of` is the object that contains the templates of the training pods."""
        training = image_and_placement(pods_of, self._request.plan.groups[0].image)
        notes = await create_watcher(self._namespaced, made.workload, training, orphan, change_pod)
        return replace(made, warnings=(*made.warnings, *notes))

    async def make_companions(self, manifests: Sequence[Manifest], made: Submitted) -> None:
        """Creates the objects that the workload owns, in the order of `manifests`."""
        last = next((each for each in manifests if each["kind"] == "ConfigMap"), None)
        for manifest in manifests:
            owned = {**manifest, "metadata": owned_by(manifest["metadata"], made.workload)["metadata"]}
            wanted = with_generated_values(owned)
            reply = await self._namespaced.create(wanted)
            if not already_exists(reply):
                await self._check(reply, manifest)
            # An object of this name exists. There are three possible creators: an interrupted submission of this run,
            # an earlier run of the same name that is being deleted, and another account.
            elif manifest["kind"] == "Secret":
                await self._replace_secret(wanted, made, last)
            else:
                await self._replace(wanted, made)

    async def _replace(self, wanted: Manifest, made: Submitted) -> None:
        """Replaces an existing object. If the workload owns the existing object, does nothing.

        In this case, another submission of the same run has created the object, and pods may already use the object.

        Raises BadInputError if the existing object does not have the label of this run. Also raises BadInputError if a
        ConfigMap without an owner existed before the first submission of the run. stepset creates no such ConfigMap,
        and a pod of the run may already have started with such a ConfigMap.
        """
        existing = await self._existing(wanted)
        owner = _owner_of(existing or {})
        if existing and not owner and not made.adopted and wanted["kind"] == "ConfigMap":
            raise BadInputError(
                f"name: ConfigMap {existing['name']} exists, and a pod of the run may have started with it; delete it,"
                " or choose another name for the run"
            )
        if not existing or owner != made.workload["metadata"]["uid"]:
            await self._recreate(wanted, existing)

    async def _recreate(self, wanted: Manifest, existing: Manifest | None) -> str:
        """Creates an object, and returns its uid.

        `existing` is the metadata of an object to delete first. If the object has changed since the metadata was read,
        the object is not deleted.
        """
        if existing:
            unchanged = {"uid": existing["uid"], "resourceVersion": existing.get("resourceVersion")}
            await self._namespaced.client.delete(self._namespaced.path_of(wanted), {"preconditions": unchanged})
        await self._check(reply := await self._namespaced.create(wanted), wanted)
        return str(reply.body["metadata"]["uid"])

    async def _existing(self, wanted: Manifest) -> Manifest | None:
        """Returns the metadata of the existing object; None if no object exists. Raises the errors of `_replace`."""
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
        """Replaces the Secret of an interrupted submission. Keeps the Secret if pods could already be using the keys.

        The account has no permission to read Secrets, so this submission cannot reuse the existing keys. `next_created`
        is the ConfigMap that a submission creates after the Secret. If the run owns this ConfigMap, an earlier
        submission has created both objects. In this case, pods could already be using the keys.

        Raises BadInputError if the Secret existed before the first submission of the run. Another account might know
        the keys of such a Secret.
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
        await self._check(await self._namespaced.create(wanted), wanted)

    async def complete(self, workload: Manifest) -> tuple[str, ...]:
        """Marks the submission as complete. If the server refuses the request, returns a warning."""
        if SUBMISSION not in (workload["metadata"].get("labels") or {}):
            return ()
        done = {"metadata": {"uid": workload["metadata"]["uid"], "labels": {SUBMISSION: None}}}
        reply = await self._namespaced.client.patch(self._namespaced.path_of(workload), done)
        if reply.accepted:
            return ()
        return (f"the run keeps the label {SUBMISSION}, because it cannot be patched: {reply.message}",)

    async def _adopted(self, workload: Manifest) -> Manifest:
        """Returns the existing workload with the run's name.

        Raises an error if the workload has another owner or another job.
        """
        run, owner = self._request.run, self._request.owner
        reply = await self._namespaced.client.get(self._namespaced.path_of(workload))
        if reply.status == NOT_FOUND:
            raise InfrastructureError(f"run {run} was deleted while it was submitted again; try again")
        await self._check(reply, workload)
        found = reply.body["metadata"]
        current_owner = (found.get("labels") or {}).get(OWNER_HASH)
        if found.get("deletionTimestamp"):
            raise being_deleted(run)
        if owner is None:
            raise name_taken(run)
        if current_owner != owner:
            state = "is owned by another caller" if current_owner else "has no owner, so it cannot be continued"
            raise BadInputError(f"name: run {run} exists already and {state}; choose another name, or delete it")
        if (found.get("annotations") or {}).get(SPEC_HASH) != self._request.spec_hash:
            raise BadInputError(
                f"name: run {run} exists already: the same caller created it for another job; choose another name,"
                f" or delete it: kubectl delete {resource_of(workload).plural} {run} -n {self._namespaced.namespace}"
            )
        return reply.body

    async def _check(self, reply: Reply, manifest: Manifest) -> None:
        if reply.accepted:
            return
        if no_namespace(reply):
            raise BadInputError(namespace_missing(reply, self._namespaced.namespace, self._namespaced.grant.interface))
        if lacks_permission(reply):
            exists = await self._namespaced.namespace_is_readable()
            raise self._namespaced.missing_permission(reply, in_namespace=exists)
        found = list(refusals(reply, manifest, self._mapper))
        raise BadInputError(*(found or [f"{manifest['kind']} {manifest['metadata']['name']}: exists already"]))


async def create_after_runtime(
    namespaced: NamespacedClient, trainjob: Manifest, timeout: float = RUNTIME_TIMEOUT
) -> Reply:
    """Creates a TrainJob whose TrainingRuntime was just created. Returns the server's last reply.

    The webhooks of Trainer and Kueue look up the runtime in a cache. If the runtime is not in the cache yet, the
    webhooks refuse the TrainJob. Then this function retries for `timeout` seconds.
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
    """Returns the uid of an object's first owner; an empty string if the object has no owner."""
    owners = metadata.get("ownerReferences") or ()
    return str(owners[0]["uid"]) if owners else ""


def _marked(manifest: Manifest) -> dict[str, Any]:
    """Returns a manifest with the label of an incomplete submission."""
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), SUBMISSION: STARTED}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
