"""Deletes a finished TrainJob when the `ttl` of the run has passed.

A TrainJob has no TTL (kubeflow/trainer#2899). Therefore the process that has followed the run deletes the TrainJob. If
this process exits before the `ttl` has passed, the TrainJob remains. The controllers of JobSets, Jobs and Volcano Jobs
delete expired workloads.
"""

from __future__ import annotations

import logging
import threading
import time

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import Connection
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.stop import delete
from stepset.errors import StepsetError
from stepset.run_status import RunStatus

_log = logging.getLogger(__name__)


async def delete_when_expired(namespaced: NamespacedClient, workload: Manifest, final: RunStatus) -> None:
    """Waits until a run expires, then deletes the run. If the run never expires, returns at once.

    If the run cannot be deleted, this function logs a warning. Then the run remains until `stepset prune` deletes it.
    """
    if final.expires is None:
        return
    await anyio.sleep(max(0.0, final.expires - time.time()))
    try:
        async with namespaced.client:
            await delete(namespaced, workload)
    except StepsetError as error:
        _log.warning("run %s has expired, but cannot be deleted now; prune deletes it later: %s", final.name, error)


def delete_in_background(
    connection: Connection, namespaced: NamespacedClient, workload: Manifest, final: RunStatus
) -> None:
    """Starts a daemon thread that deletes a run when the run expires.

    The thread does not keep the process running.
    """
    if final.expires is None:
        return

    def wait_and_delete() -> None:
        assert final.expires is not None
        time.sleep(max(0.0, final.expires - time.time()))
        connection.call(delete_when_expired, namespaced, workload, final)

    threading.Thread(target=wait_and_delete, name=f"ttl of {final.name}", daemon=True).start()
