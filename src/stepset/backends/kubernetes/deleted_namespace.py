"""Explains the end of a run whose namespace is being deleted. The pods and the workload do not report this deletion."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.resources import PODS
from stepset.errors import InfrastructureError
from stepset.run_status import FailureKind, RunStatus
from stepset.watch.cluster.terminations import was_deleted

_ADVICE = "Create the namespace again, or use another one, and run the job again."


_TIMEOUT = 20.0
"""Seconds in which the server must answer all requests."""


async def with_deleted_namespace(
    namespaced: NamespacedClient, status: RunStatus, *, read_only: bool = False
) -> RunStatus:
    """Returns the final status of a run. If the run or a pod was deleted with its namespace, the failure states this.

    The Roles of an account are deleted with the namespace. If the account is no longer permitted to read pods, the
    account lost its permissions while it followed the run. In this case, the namespace is most likely being deleted.

    If `read_only` is true, no dry run is sent. If the server does not answer in time, returns `status`.
    """
    failure = status.failure
    if failure is None or not was_deleted(status):
        return status
    why = ""
    with suppress(InfrastructureError), anyio.move_on_after(_TIMEOUT):
        why = await _deletion(namespaced, read_only)
    if not why:
        return status
    start = "the run was cancelled" if failure.kind is FailureKind.CANCELLED else "the run was stopped"
    return status.with_(failure=replace(failure, message=f"{start}: {why}", advice=_ADVICE))


async def _deletion(namespaced: NamespacedClient, read_only: bool) -> str:
    """Returns a sentence that states that the namespace is being deleted, and "" if this is not known."""
    from stepset.backends.kubernetes.submit.namespaces import namespace_problem  # imports pydantic, which takes long

    client, name = namespaced.client, namespaced.namespace
    if await namespace_problem(client, name, namespaced.grant.interface, read_only=read_only):
        return f"its namespace {name} is being deleted."
    if lacks_permission(await client.get(namespaced.all(PODS), {"limit": "1"})):
        return f"its namespace {name} is most likely being deleted, as this account has lost its permissions there."
    return ""
