"""Finds the kinds of workload whose runs the account cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from stepset.backends.kubernetes.api.client import gather
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply
from stepset.backends.kubernetes.api.resources import WORKLOADS, Resource, target_of
from stepset.defaults import TARGET
from stepset.errors import InfrastructureError


async def check_access(namespaced: NamespacedClient, kinds: Sequence[Resource], replies: Sequence[Reply]) -> None:
    """Raises InfrastructureError if the account can read none of the kinds.

    The error contains the command that grants access to the runs of one target. If the server serves the default
    target, the command is for the default target.
    """
    if any(reply.accepted or reply.lacks_object for reply in replies):
        return
    if targets := await hidden_targets(namespaced, kinds, replies):
        raise await _missing_permission(namespaced, kinds, replies, targets)


async def hidden_default_target(
    namespaced: NamespacedClient, kinds: Sequence[Resource], replies: Sequence[Reply], *, found: bool = False
) -> InfrastructureError | None:
    """Returns an error if the account cannot read the runs of the default target.

    If the server does not serve the kind of these runs, returns None.

    An account with the minimal Role of the default target cannot read the runs of other targets. Therefore this
    function reports other targets only together with the default target.

    Args:
        kinds: the kinds of workload.
        replies: the reply to the request for each kind.
        found: whether the replies contain runs.
    """
    default = WORKLOADS[TARGET]
    if not any(kind == default and lacks_permission(reply) for kind, reply in zip(kinds, replies, strict=True)):
        return None
    if (await namespaced.client.get(default.discovery)).status == NOT_FOUND:
        return None
    targets = await hidden_targets(namespaced, kinds, replies)
    return await _missing_permission(namespaced, kinds, replies, targets, found=found)


async def _missing_permission(
    namespaced: NamespacedClient,
    kinds: Sequence[Resource],
    replies: Sequence[Reply],
    targets: Sequence[str],
    *,
    found: bool = False,
) -> InfrastructureError:
    """Returns the error for the targets whose runs the account cannot read. The command is for one target."""
    wanted = TARGET if TARGET in targets else targets[0]
    refused = next(reply for kind, reply in zip(kinds, replies, strict=True) if kind == WORKLOADS[wanted])
    others = [each for each in targets if each != wanted]
    exists = found or await namespaced.namespace_is_readable()
    return namespaced.granting(wanted).missing_permission(refused, others, in_namespace=exists)


async def hidden_targets(
    namespaced: NamespacedClient, kinds: Sequence[Resource], replies: Sequence[Reply]
) -> Sequence[str]:
    """Returns the targets whose runs the account cannot read.

    A server may deny access to a kind that the server does not serve. Therefore this function asks the server which of
    the denied kinds it serves. The function returns only the targets of the served kinds. If the server serves none of
    the denied kinds, the function returns the targets of all denied kinds.
    """
    hidden = [kind for kind, reply in zip(kinds, replies, strict=True) if lacks_permission(reply)]
    known = await gather(*(namespaced.client.get(kind.discovery) for kind in hidden))
    served = [kind for kind, reply in zip(hidden, known, strict=True) if reply.status != NOT_FOUND] or hidden
    return [target for target in map(target_of, served) if target is not None]
