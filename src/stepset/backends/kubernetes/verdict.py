"""Writes a run's verdict onto its workload, where it remains when the pods are deleted (watch/cluster/verdict.py)."""

from __future__ import annotations

from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.stop import check
from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.verdict import verdict_text
from stepset.watch.state import RunStatus


async def write_verdict(namespaced: NamespacedClient, workload: Manifest, status: RunStatus) -> bool:
    """Writes the verdict, a final status; returns False if the workload no longer exists. Raises as `stop.check` does.

    A StatefulSet never ends by itself; the same request scales it to zero.
    """
    body: dict[str, Any] = {
        "metadata": {"uid": workload["metadata"]["uid"], "annotations": {VERDICT: verdict_text(status)}}
    }
    if workload["kind"] == "StatefulSet":
        body["spec"] = {"replicas": 0}
    return check(await namespaced.client.patch(namespaced.path_of(workload), body), "given its verdict", workload)
