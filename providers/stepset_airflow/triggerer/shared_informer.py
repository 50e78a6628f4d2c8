"""Shares one informer between the triggers of an event loop. The triggers must follow runs in the same namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.watch.informer import Informer
from stepset.backends.kubernetes.watch.selectors import of_namespace
from stepset_airflow.hooks.cluster import ClusterAccess, client_of


@dataclass(eq=False)
class SharedInformer:
    """An informer that several triggers use. `users` is the number of triggers."""

    informer: Informer
    users: int = 0


Key = tuple[ClusterAccess, str]

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, SharedInformer]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_informer(access: ClusterAccess, target: str) -> AsyncIterator[SharedInformer]:
    """Yields the informer of a namespace. When the last trigger leaves the context, the informer is stopped.

    Each target has a separate informer, because a TrainJob and its JobSet have the same name.

    Raises BadInputError if the configuration of the cluster is invalid.
    """
    key, informers = (access, target), _shared.setdefault(asyncio.get_running_loop(), {})
    if (shared := informers.get(key)) is None:
        client = NamespacedClient(client_of(access), access.namespace or "", Grant("airflow", (target,)))
        shared = informers[key] = SharedInformer(Informer(client, of_namespace))
        await shared.informer.__aenter__()
    shared.users += 1
    try:
        await shared.informer.namespaced.client.open()
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            del informers[key]
            await shared.informer.__aexit__(None, None, None)
