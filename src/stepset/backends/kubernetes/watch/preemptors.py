"""Reads the names of the workloads for which Kueue has preempted a run. Kueue's message contains only their uids."""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import QUEUE_WORKLOADS
from stepset.backends.kubernetes.watch.selectors import KUEUE_UID
from stepset.errors import StepsetError
from stepset.unstructured import part, rows, text
from stepset.watch.cluster.objects import RunObjects


async def read_preemptors(namespaced: NamespacedClient, run: RunObjects) -> None:
    """Adds the kinds and names of the preemptors of a run to `run.preemptors`.

    Sends one request for each preemptor. A preemptor remains unknown if it is in another namespace or no longer exists,
    or if the Workloads cannot be read.
    """
    for uid in {each.preemptor for each in run.kueue_workloads if each.preemptor}:
        try:
            query = {"labelSelector": f"{KUEUE_UID}={uid}", "limit": "1"}
            reply = await namespaced.client.get(QUEUE_WORKLOADS.path(namespaced.namespace), query)
        except StepsetError:
            continue
        for workload in rows(reply.body, "items") if reply.accepted else ():
            for owner in rows(part(workload, "metadata"), "ownerReferences"):
                if text(owner, "uid") == uid:
                    run.preemptors[uid] = f"{text(owner, 'kind')} {text(owner, 'name')}"
