"""Writes a run's verdict onto its workload, where it remains when the pods are deleted (watch/cluster/verdict.py)."""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.stop import check
from stepset.run_status import RunStatus
from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.verdict import verdict_text


async def write_verdict(namespaced: NamespacedClient, workload: Manifest, status: RunStatus) -> bool:
    """Writes the verdict, a final status; returns False if the workload no longer exists. Raises as `stop.check` does.

    A StatefulSet never ends by itself; it is scaled to zero, even if the server rejects the verdict.
    """
    path, about = namespaced.path_of(workload), {"uid": workload["metadata"]["uid"]}
    verdict = {"metadata": {**about, "annotations": {VERDICT: verdict_text(status)}}}
    try:
        return check(await namespaced.client.patch(path, verdict), "given its verdict", workload, namespaced)
    finally:
        if workload["kind"] == "StatefulSet":
            scaled = {"metadata": about, "spec": {"replicas": 0}}
            check(await namespaced.client.patch(path, scaled), "scaled to zero", workload, namespaced)
