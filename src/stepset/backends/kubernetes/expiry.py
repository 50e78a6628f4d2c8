"""Deletes a TrainJob when its `ttl` is over, from a process that has followed the run and is still running then.

The controllers of the other workloads do this themselves. A TrainJob has no TTL (kubeflow/trainer#2899).
"""

from __future__ import annotations

import logging
import threading
import time

import anyio

from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.stop import delete
from stepset.errors import StepsetError
from stepset.run_status import RunStatus

_log = logging.getLogger(__name__)


async def delete_when_expired(namespaced: NamespacedClient, workload: Manifest, final: RunStatus) -> None:
    """Waits until a run expires, and deletes it; returns at once if it does not expire.

    If the run cannot be deleted then, it stays for `stepset prune`, with a warning in the process's log.
    """
    if final.expires is None:
        return
    await anyio.sleep(max(0.0, final.expires - time.time()))
    try:
        async with namespaced.client:
            await delete(namespaced, workload)
    except StepsetError as error:
        _log.warning("run %s has expired, but cannot be deleted; use stepset prune: %s", final.name, error)


def delete_in_background(
    connection: Connection, namespaced: NamespacedClient, workload: Manifest, final: RunStatus
) -> None:
    """Deletes a run when it expires, in a thread that does not keep the process running."""
    if final.expires is None:
        return

    def wait_and_delete() -> None:
        assert final.expires is not None
        time.sleep(max(0.0, final.expires - time.time()))
        connection.call(delete_when_expired, namespaced, workload, final)

    threading.Thread(target=wait_and_delete, name=f"ttl of {final.name}", daemon=True).start()
