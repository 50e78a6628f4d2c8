"""The end of a run written onto its workload, so that it is known when its pods are gone.

Called by whoever follows a run. watch/cluster/verdict.py says what is written, and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.stop import check
from stepset.targets.identity import VERDICT
from stepset.watch.cluster.verdict import verdict_text
from stepset.watch.state import RunStatus


async def write_verdict(site: NamespacedClient, workload: Mapping[str, Any], status: RunStatus) -> bool:
    """Writes a run's end down.

    A StatefulSet never ends by itself; it is scaled to nothing with the same request.

    Args:
        site: where.
        workload: its object on top.
        status: final.

    Returns:
        False where the workload is gone.

    Raises:
        InfrastructureError: the server cannot be asked, or refuses.
    """
    body: dict[str, Any] = {
        "metadata": {"uid": workload["metadata"]["uid"], "annotations": {VERDICT: verdict_text(status)}}
    }
    if workload["kind"] == "StatefulSet":
        body["spec"] = {"replicas": 0}
    return check(await site.client.patch(site.path_of(workload), body), "given its verdict", workload)
