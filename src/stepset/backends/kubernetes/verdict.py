"""Writes the verdict of a run (watch/cluster/verdict.py) to the run's workload.

The verdict remains after the pods are deleted.
"""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.stop import check
from stepset.run_status import RunStatus
from stepset.targets.metadata import VERDICT
from stepset.targets.workload_kinds import workload_kind
from stepset.watch.cluster.verdict import verdict_text


async def write_verdict(namespaced: NamespacedClient, workload: Manifest, status: RunStatus) -> bool:
    """Writes the final status of a run as the run's verdict.

    Returns False if the workload no longer exists. Raises the errors of `stop.check`. A StatefulSet never finishes by
    itself. Therefore this function scales a StatefulSet to zero replicas, even if the server rejects the verdict.
    """
    path, about = namespaced.path_of(workload), {"uid": workload["metadata"]["uid"]}
    verdict = {"metadata": {**about, "annotations": {VERDICT: verdict_text(status)}}}
    try:
        return check(await namespaced.client.patch(path, verdict), "given its verdict", workload, namespaced)
    finally:
        if not (kind := workload_kind(workload)).finishes:
            scaled = {"metadata": about, "spec": kind.suspension}
            check(await namespaced.client.patch(path, scaled), "scaled to zero", workload, namespaced)
