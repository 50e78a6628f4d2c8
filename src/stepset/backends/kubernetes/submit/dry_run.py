"""Checks whether a server would accept a job from this account. No object is created.

The check has five parts:

1. The check reviews each permission in the minimal Role. A missing permission to read Kueue's Workloads is only a note,
   because a submission does not need this permission.
2. The check sends every object of the run, and one pod of each group, as a dry run. In a dry run, the server sets
   default values, validates the object and runs admission checks. The server does not store the object
   (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run).
3. If the run uses Kueue, the check reads the run's LocalQueue, ClusterQueue and WorkloadPriorityClass. If the account
   cannot create pods, the check also reads the PriorityClass of the pods.
4. The check compares the total requests of all pods with the ResourceQuotas of the namespace, and with the quota of the
   ClusterQueue. A run that exceeds a whole quota is refused.
5. The check reads the claims and the Secrets that the pods name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.permissions import Grant, account_name
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.submit.access_review import (
    Permission,
    allowed,
    grant_of,
    missing_of,
    required_by,
)
from stepset.backends.kubernetes.submit.access_review import problems as access_problems
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.generated import with_generated_values
from stepset.backends.kubernetes.submit.named_objects import check_named_objects
from stepset.backends.kubernetes.submit.namespaces import namespace_problem
from stepset.backends.kubernetes.submit.queues import check_queue, missing_priority_classes
from stepset.backends.kubernetes.submit.quotas import cluster_queue_lines, quota_lines
from stepset.backends.kubernetes.submit.refusals import misses_runtime, namespace_missing, no_namespace, refusals
from stepset.backends.kubernetes.submit.rejections import unknown_fields
from stepset.backends.kubernetes.submit.service_accounts import missing_service_accounts
from stepset.errors import BadInputError
from stepset.plan.model import LaunchPlan
from stepset.rendering import render
from stepset.targets.metadata import GROUP, PARTIAL_ADMISSION
from stepset.targets.pod_templates import templates_of
from stepset.targets.request import RenderRequest
from stepset.targets.workload_kinds import WORKLOAD_KINDS

_PODS = Permission("", "pods", "create")
# The uid of an owner that does not exist. A policy may refuse pods without an owner. The server does not check whether
# the owner exists.
_MISSING_OWNER = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Checked:
    """The result of a successful check. `objects`, `pods` and `permissions` are the numbers of checked items.

    `notes` contains the server's warnings, and a line for each check that was not possible.
    """

    server: str
    namespace: str
    objects: int
    pods: int
    permissions: int
    notes: tuple[str, ...]


async def check_on_server(request: RenderRequest, target: str, client: Client) -> Checked:
    """Checks a run in the namespace of `request`.

    If `request` contains no namespace, the namespace in the client's configuration is used.

    Raises:
        BadInputError: the server or stepset found problems. The error contains one line for each problem.
        InfrastructureError: the server cannot be reached or does not answer.
    """
    objects = render(request, target)
    namespace = request.namespace or (await client.open()).namespace
    grant = grant_of(request.job, target, "cli")
    required = required_by(grant)
    missing = await missing_of(client, required, namespace)
    if missing and (no_access := await namespace_problem(client, namespace, "cli")):
        raise BadInputError(no_access)
    found, notes = await access_problems(client, missing, namespace, grant)
    mapper = FieldMapper(request.job, request.plan, "cli")

    # Skip the objects that the account cannot create. `found` already contains a line for each such object.
    may = [each for each in objects if _create(each) not in missing]
    trial = pods = trial_pods(request, target, objects)
    specs = {pod["metadata"]["name"]: pod["spec"] for pod in trial}
    if not await allowed(client, _PODS, namespace):
        found += await missing_service_accounts(client, namespace, objects, mapper)
        found += await missing_priority_classes(client, pods, mapper)
        pods = []
        notes.append(await _unchecked_pods(client, namespace, grant))
    for each in (*may, *pods):
        reply = await _try(client, each, namespace)
        if no_namespace(reply):
            found.append(namespace_missing(reply, namespace, "cli"))
            break
        if misses_runtime(reply, each):
            notes.append(f"TrainJob {request.run} was checked only as far as possible without its TrainingRuntime")
            continue
        found += refusals(reply, each, mapper)
        if reply.accepted and each["kind"] == "Pod":
            specs[each["metadata"]["name"]] = reply.body["spec"]  # with the defaults of a LimitRange
        notes += [unknown_fields(text, each, mapper) for text in reply.warnings]
    else:
        named = await check_named_objects(client, namespace, trial, objects, mapper)
        found += named.problems
        notes += named.notes
        about = objects[-1]["metadata"]
        queue = await check_queue(client, namespace, about.get("labels") or {}, grant)
        found += queue.problems
        notes += queue.notes
        counts = {group.name: group.count for group in request.plan.groups}
        sizes = [counts[pod["metadata"]["labels"][GROUP]] for pod in trial]
        every = list(zip(specs.values(), sizes, strict=True))
        if queue.cluster_queue is not None:
            partial = PARTIAL_ADMISSION in (about.get("annotations") or {})
            exceeded, more_notes = cluster_queue_lines(queue.cluster_queue, every, partial=partial)
            found += exceeded
            notes += more_notes
        quotas = await quota_lines(client, namespace, every, together=_need_all_pods(request.plan))
        if quotas is not None:
            refused = any("exceeded quota" in line for line in found)  # by one pod
            found += () if refused else quotas[0]
            notes += quotas[1]
        elif pods:
            command = replace(grant, validate=True).command(namespace, await account_name(client))
            notes.append(
                f"quotas were not compared, because you may not list them; have an administrator run: {command}"
            )
    if found:
        raise BadInputError(*dict.fromkeys(found))
    return Checked(client.server, namespace, len(objects), len(pods), len(required), tuple(dict.fromkeys(notes)))


async def _unchecked_pods(client: Client, namespace: str, grant: Grant) -> str:
    """Returns the note for an account that may not create pods.

    The note contains the command that grants the permission.
    """
    command = replace(grant, validate=True).command(namespace, await account_name(client))
    return (
        "the pods were not checked against quotas, limit ranges, pod security, service accounts and priority classes,"
        f" because that needs the permission to create pods in namespace {namespace}; to check them, have an"
        f" administrator run: {command}"
    )


def _need_all_pods(plan: LaunchPlan) -> bool:
    """Returns whether all pods of a run must exist at the same time."""
    later = any(after.condition == "Complete" for group in plan.groups for after in group.start_after)
    return plan.world.elastic is None and not later


def _create(manifest: Manifest) -> Permission:
    resource = resource_of(manifest)
    return Permission(resource.group, resource.plural, "create")


async def _try(client: Client, manifest: Manifest, namespace: str) -> Reply:
    resource = resource_of(manifest)
    # A field of a custom resource may be unknown because the controller is old. Then the server returns a warning. If a
    # field of a built-in resource is unknown, `pod_template` contains a mistake. Then the server must return an error.
    validation = "Strict" if resource.builtin else "Warn"
    query = {"dryRun": "All", "fieldManager": "stepset", "fieldValidation": validation}
    return await client.post(resource.path(namespace), with_generated_values(manifest), query)


def trial_pods(request: RenderRequest, target: str, objects: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Returns one pod of each group. `objects` are the rendered objects of `request`.

    A server may accept a JobSet and later refuse the pods. The server checks quotas, limit ranges, pod security,
    service accounts and priority classes only when a pod is created.
    """
    if target == "trainjob":
        # Trainer's controller creates a JobSet with the same pods as stepset's JobSet (docs/targets.md, trainjob).
        from stepset.targets.kinds.jobset import render as render_jobset

        objects = render_jobset(request)
    kind = WORKLOAD_KINDS[target].pod_owner
    pods = []
    for template in templates_of(objects[-1]):
        name = f"{request.run}-{template['metadata']['labels'][GROUP]}-0-0"
        of_kind = {"apiVersion": kind.api_version, "kind": kind.kind}
        owner = {**of_kind, "name": request.run, "uid": _MISSING_OWNER, "controller": True}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods
