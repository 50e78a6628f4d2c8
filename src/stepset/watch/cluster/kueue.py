"""A run's Kueue Workload, and its position in a queue.

Sources: sigs.k8s.io/kueue v0.16.2 apis/kueue/v1beta2/workload_types.go, v0.18.2 apis/visibility/v1beta2/types.go
(v1beta1 has the same fields).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.run_status import Waiting
from stepset.unstructured import Fields, conditions, holds, number, one_line, part, rows, text, time_of


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """A Workload of Kueue.

    Args:
        owners: uids of the objects that wait in the queue.
        reason: why Kueue has not admitted it, as one word; `message` is Kueue's sentence.
        evicted: why Kueue evicted it, at `evicted_at` seconds since the epoch; empty if it did not.
    """

    uid: str
    owners: tuple[str, ...]
    queue: str
    admitted: bool
    reason: str
    message: str
    evicted: str
    evicted_at: float | None

    def waiting(self, queue: str, position: int | None = None) -> Waiting:
        """Its state in the queue before admission; `queue` applies if the Workload names no queue yet."""
        message = self.message
        if self.evicted:
            message = f"{message} (evicted: {self.evicted})".lstrip()
        return Waiting(self.queue or queue, self.reason, message, position)

    def position_in(self, positions: Mapping[str, int]) -> int | None:
        """Its position in the result of `read_positions`; None if it is not listed."""
        return min((positions[uid] for uid in self.owners if uid in positions), default=None)


def read_kueue_workload(data: Fields) -> KueueWorkload:
    """Reads a Kueue Workload."""
    meta, spec = part(data, "metadata"), part(data, "spec")
    by_type = conditions(part(data, "status"))
    reserved, evicted = by_type.get("QuotaReserved", {}), by_type.get("Evicted", {})
    admitted = holds(by_type.get("Admitted"))
    message = "" if admitted else one_line(text(reserved, "message"))
    if not admitted and holds(reserved):
        message = "quota is reserved; the queue's admission checks are not complete"
    if spec.get("active") is False:
        message = "its Workload is not active"
    return KueueWorkload(
        uid=text(meta, "uid"),
        owners=tuple(text(row, "uid") for row in rows(meta, "ownerReferences")),
        queue=text(spec, "queueName"),
        admitted=admitted,
        reason="" if admitted else text(reserved, "reason"),
        message=message,
        evicted=one_line(text(evicted, "message")) or text(evicted, "reason") if holds(evicted) else "",
        evicted_at=time_of(evicted, "lastTransitionTime") if holds(evicted) else None,
    )


def read_positions(summary: object) -> dict[str, int]:
    """Reads a LocalQueue's PendingWorkloadsSummary: uid of each Workload's owner -> position in the queue, from 1.

    Items do not contain the Workload's uid. Invalid summaries and items are ignored.

    >>> owner = {"kind": "JobSet", "name": "digits-1", "uid": "u-1"}
    >>> read_positions({"items": [{"metadata": {"ownerReferences": [owner]}, "positionInLocalQueue": 0}]})
    {'u-1': 1}
    """
    if not isinstance(summary, Mapping):
        return {}
    found: dict[str, int] = {}
    for item in rows(summary, "items"):
        position = number(item, "positionInLocalQueue", -1)
        if position >= 0:
            owners = (text(row, "uid") for row in rows(part(item, "metadata"), "ownerReferences"))
            found |= {uid: position + 1 for uid in owners if uid}
    return found
