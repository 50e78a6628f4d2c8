"""Finds missing service accounts of the pods of a run.

If a service account does not exist, the API server accepts the workload of a run, but refuses the pods.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.lookup import get_namespace
from stepset.backends.kubernetes.api.replies import NOT_FOUND
from stepset.backends.kubernetes.api.resources import SERVICE_ACCOUNTS, Manifest
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.refusals import namespace_missing
from stepset.targets.pod_templates import templates_of
from stepset.targets.pods.service_account import creation


async def missing_service_accounts(
    client: Client, namespace: str, objects: Sequence[Manifest], mapper: FieldMapper
) -> list[str]:
    """Returns an error message for each service account that does not exist.

    A service account is not checked if the client has no permission to read it. If the namespace does not exist, the
    only message is about the namespace.

    Args:
        client: the client of the API server.
        namespace: the namespace of the run.
        objects: the objects of the run. One of the objects contains the templates of the pods.
        mapper: the mapper for the job of the run.
    """
    named: set[str] = {
        template["spec"]["serviceAccountName"]
        for each in objects
        for template in templates_of(each)
        if template["spec"].get("serviceAccountName")
    }
    lines: list[str] = []
    for name in sorted(named):
        reply = await client.get(f"{SERVICE_ACCOUNTS.path(namespace)}/{name}")
        if reply.lacks_object:
            found = await get_namespace(client, namespace)
            if found.status == NOT_FOUND:
                return [namespace_missing(found, namespace, mapper.interface)]
            field = mapper.scheduling("serviceAccountName")
            lines.append(f"{field}: {name!r} does not exist in namespace {namespace}; {creation(name, namespace)}")
    return lines
