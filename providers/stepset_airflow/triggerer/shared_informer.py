"""One informer for all triggers of an event loop that follow runs in one namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.watch.informer import Informer, namespace_informer
from stepset_airflow.hooks.cluster import ClusterAccess, client_of


@dataclass(eq=False)
class SharedInformer:
    """An informer, its number of users, and the limit of logs that they read concurrently."""

    informer: Informer
    connections: LogConnections = field(default_factory=LogConnections)
    users: int = 0


Key = tuple[ClusterAccess, str]

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, SharedInformer]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_informer(access: ClusterAccess, target: str) -> AsyncIterator[SharedInformer]:
    """Returns the informer of a namespace; its last user stops it. Raises BadInputError as `client_of`'s requests.

    Each target has its own, because a TrainJob and its JobSet have the same name.
    """
    key, informers = (access, target), _shared.setdefault(asyncio.get_running_loop(), {})
    if (shared := informers.get(key)) is None:
        client = NamespacedClient(client_of(access), access.namespace or "")
        shared = informers[key] = SharedInformer(namespace_informer(client))
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
