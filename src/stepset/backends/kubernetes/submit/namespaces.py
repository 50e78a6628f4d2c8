"""Finds a namespace that does not exist or is being deleted."""

from __future__ import annotations

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.lookup import get_namespace
from stepset.backends.kubernetes.api.replies import NOT_FOUND
from stepset.backends.kubernetes.api.resources import CONFIG_MAPS
from stepset.backends.kubernetes.submit.refusals import namespace_missing, no_namespace
from stepset.backends.option_names import Interface
from stepset.unstructured import part, text

_TRIAL = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "stepset-"}}


async def namespace_problem(client: Client, namespace: str, interface: Interface, *, read_only: bool = False) -> str:
    """Returns a message if the namespace does not exist or is being deleted, and otherwise "".

    Most accounts cannot read the namespace. For these accounts, this function creates a ConfigMap in a dry run.
    If the account cannot create ConfigMaps either, or if `read_only` is true, the function returns "".

    Raises InfrastructureError if the server cannot be reached.
    """
    found = await get_namespace(client, namespace)
    if found.status == NOT_FOUND or (found.accepted and text(part(found.body, "status"), "phase") == "Terminating"):
        return namespace_missing(found, namespace, interface)
    if found.accepted or read_only:
        return ""
    tried = await client.post(CONFIG_MAPS.path(namespace), _TRIAL, {"dryRun": "All"})
    return namespace_missing(tried, namespace, interface) if no_namespace(tried) else ""
