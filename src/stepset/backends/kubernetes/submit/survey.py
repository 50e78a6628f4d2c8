"""Reads the version of a cluster, the account's permissions, the installed controllers and the devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client, gather
from stepset.backends.kubernetes.api.permissions import Grant, account_name
from stepset.backends.kubernetes.api.replies import NOT_FOUND
from stepset.backends.kubernetes.api.resources import WORKLOADS, Resource
from stepset.backends.kubernetes.submit.access_review import missing_of, problems, required_by
from stepset.backends.kubernetes.submit.namespaces import namespace_problem
from stepset.errors import InfrastructureError
from stepset.unstructured import part, rows, text

_NODES = Resource("", "v1", "nodes")


@dataclass(frozen=True)
class Survey:
    """The properties of a cluster for one account.

    Args:
        version: the version of the API server, such as v1.36.0.
        account: the name of the account; "" if the server reports no name.
        no_namespace: a message if the namespace does not exist or is being deleted; otherwise "".
        namespace: the namespace for which the permissions were checked.
        target: the kind of workload for which the permissions were checked.
        permissions: the number of permissions that were checked.
        missing: one line for each resource for which the account lacks permissions. Each line contains the command that
            grants the permissions.
        notes: such a line for each resource that only diagnoses need.
        served: the targets whose kinds the server serves.
        absent: a message if the server does not serve the kind of `target`; otherwise "".
        gpus: a mapping from the name of a device to the number of these devices on all nodes. None means that the
            account has no permission to list nodes.
    """

    version: str
    account: str
    no_namespace: str
    namespace: str
    target: str
    permissions: int
    missing: Sequence[str]
    notes: Sequence[str]
    served: Sequence[str]
    absent: str
    gpus: Mapping[str, int] | None


async def survey(client: Client, namespace: str, grant: Grant) -> Survey:
    """Returns the properties of a cluster for the account of `client`.

    Raises InfrastructureError if the server does not answer.
    """
    about = await client.get("/version")
    if not about.accepted:
        raise InfrastructureError(f"server {client.server}: does not report its version (HTTP {about.status})")
    required = required_by(grant)
    missing = await missing_of(client, required, namespace)
    replies = await gather(*(client.get(kind.discovery) for kind in WORKLOADS.values()))
    refused, notes = await problems(client, missing, namespace, grant)
    states, target = dict(zip(WORKLOADS, replies, strict=True)), grant.targets[0]
    return Survey(
        version=text(about.body, "gitVersion") or "of unknown version",
        account=await account_name(client),
        no_namespace=await namespace_problem(client, namespace, grant.interface, read_only=grant.read_only),
        namespace=namespace,
        target=target,
        permissions=len(required),
        missing=refused,
        notes=notes,
        served=[name for name, reply in states.items() if reply.status != NOT_FOUND],
        absent=WORKLOADS[target].absent(grant.interface) if states[target].status == NOT_FOUND else "",
        gpus=await _devices(client),
    )


async def _devices(client: Client) -> Mapping[str, int] | None:
    reply = await client.get(_NODES.path(""), {"limit": "500"})
    if not reply.accepted:
        return None
    found: Counter[str] = Counter()
    for node in rows(reply.body, "items"):
        for name, amount in part(node, "status", "allocatable").items():
            if "/" in name and not name.startswith(("kubernetes.io/", "hugepages")) and str(amount).isdecimal():
                found[name] += int(amount)
    return {name: number for name, number in found.items() if number}
