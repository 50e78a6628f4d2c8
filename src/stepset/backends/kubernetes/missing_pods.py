"""Reads the events that report why runs lack pods, for a list of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import EVENTS, Manifest
from stepset.backends.kubernetes.watch.selectors import concerns
from stepset.errors import InfrastructureError
from stepset.unstructured import part, rows, text
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.list_watch import Change

_PAGE = 500
_PAGES = 8
"""The maximum number of pages that are read. A cluster may have very many events, and the reasons are optional."""


async def events_of_missing_pods(
    namespaced: NamespacedClient, runs: Iterable[RunObjects]
) -> list[tuple[RunObjects, Change]]:
    """Returns the events about the runs that lack pods, for example because their ServiceAccount does not exist.

    Only events report the reason. If no run lacks pods, or if all such runs are being deleted, sends no request. If the
    server refuses a request or cannot be reached, returns the events that were read before.
    """
    lacking: dict[str, list[tuple[RunObjects, Callable[[Manifest], bool]]]] = defaultdict(list)
    for run in runs:
        if (workload := run.workload) is None or workload.suspended or workload.ended or workload.deletion_requested:
            continue
        if len(run.pods) < sum(workload.groups.values()):
            lacking[workload.namespace].append((run, concerns(run.name)))
    if not lacking:
        return []
    namespace = next(iter(lacking)) if len(lacking) == 1 else namespaced.namespace
    found: list[tuple[RunObjects, Change]] = []
    try:
        async with aclosing(_warnings(namespaced, namespace)) as warnings:
            async for event in warnings:
                about = lacking.get(text(part(event, "involvedObject"), "namespace"), ())
                found += [(run, Change("ADDED", event)) for run, wanted in about if wanted(event)]
    except InfrastructureError:  # the list of runs does not need the reasons
        pass
    return found


async def _warnings(namespaced: NamespacedClient, namespace: str) -> AsyncGenerator[Manifest, None]:
    """Yields the first events of the type Warning in a namespace, or in all namespaces if `namespace` is empty."""
    query = {"fieldSelector": "type=Warning", "limit": str(_PAGE)}
    for _ in range(_PAGES):
        reply = await namespaced.client.get(EVENTS.path(namespace), query)
        if not reply.accepted:
            return
        for event in rows(reply.body, "items"):
            yield {**event, "kind": "Event"}
        if not (following := text(part(reply.body, "metadata"), "continue")):
            return
        query["continue"] = following
