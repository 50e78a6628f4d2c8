"""Checks whether a server would accept a job from this account, and creates nothing.

Reviews each verb of the minimal Role, then sends every object, and a pod of each group, as a dry run: the server
defaults, validates and admits them without storing them
(https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run).
"""

from __future__ import annotations

from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.submit.access_review import Permission, allowed, grant_of, missing_of, required_by
from stepset.backends.kubernetes.submit.access_review import problems as access_problems
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.generated import with_generated_values
from stepset.backends.kubernetes.submit.refusals import misses_runtime, namespace_missing, no_namespace, refusals
from stepset.backends.kubernetes.submit.rejections import unknown_fields
from stepset.backends.kubernetes.submit.trial_pods import trial_pods
from stepset.errors import BadInputError
from stepset.targets.render import render
from stepset.targets.request import RenderRequest

_PODS = Permission("", "pods", "create")


@dataclass(frozen=True)
class Checked:
    """The result of a successful check: how many objects, pods and permissions were checked.

    `notes` are the server's warnings, and the checks that were not possible.
    """

    server: str
    namespace: str
    objects: int
    pods: int
    permissions: int
    notes: tuple[str, ...]


async def check_on_server(request: RenderRequest, target: str, client: Client) -> Checked:
    """Checks a run in the namespace of `request`; default: that of the client's configuration.

    Raises BadInputError with one line for each problem that the server or stepset finds, and InfrastructureError if
    the server cannot be reached or does not answer.
    """
    objects = render(request, target)
    namespace = request.namespace or (await client.open()).namespace
    grant = grant_of(request.job, target, "cli")
    required = required_by(grant)
    missing = await missing_of(client, required, namespace)
    found = await access_problems(client, missing, namespace, grant)
    notes: list[str] = []
    mapper = FieldMapper(request.job, request.plan)

    # `found` already names the objects that the account may not create.
    may = [each for each in objects if _create(each) not in missing]
    pods = trial_pods(request, target, objects)
    if not await allowed(client, _PODS, namespace):
        pods = []
        notes.append(
            f"pods were not checked: you may not create pods in namespace {namespace}, only controllers may; quotas,"
            " limit ranges and pod security may refuse the pods when a controller creates them"
        )
    for each in (*may, *pods):
        reply = await _try(client, each, namespace)
        if no_namespace(reply):
            found.append(namespace_missing(namespace))
            break
        if any(other["kind"] == "TrainingRuntime" for other in objects) and misses_runtime(reply, each):
            notes.append(f"TrainJob {request.run} was checked only as far as possible without its TrainingRuntime")
            continue
        found += refusals(reply, each, mapper)
        notes += [unknown_fields(text, each, mapper) for text in reply.warnings]
    if found:
        raise BadInputError(*dict.fromkeys(found))
    return Checked(client.server, namespace, len(objects), len(pods), len(required), tuple(dict.fromkeys(notes)))


def _create(manifest: Manifest) -> Permission:
    resource = resource_of(manifest)
    return Permission(resource.group, resource.plural, "create")


async def _try(client: Client, manifest: Manifest, namespace: str) -> Reply:
    resource = resource_of(manifest)
    # If the installed version of a controller does not know a field, the server's warning becomes a note. If Kubernetes
    # does not know a field, it is a mistake in pod_template, and the server must not drop it without an error.
    validation = "Strict" if resource.builtin else "Warn"
    query = {"dryRun": "All", "fieldManager": "stepset", "fieldValidation": validation}
    return await client.post(resource.path(namespace), with_generated_values(manifest), query)
