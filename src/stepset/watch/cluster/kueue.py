"""A run's Workload in Kueue, and its position in a queue.

Sources: sigs.k8s.io/kueue v0.16.2 apis/kueue/v1beta2/workload_types.go, v0.18.2 apis/visibility/v1beta2/types.go
(v1beta1 has the same fields).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.watch.cluster.unstructured import Fields, conditions, holds, number, one_line, part, rows, text, time_of
from stepset.watch.state import Waiting


@dataclass(frozen=True, slots=True)
class Ticket:
    """A Workload of Kueue: a place in a queue.

    Args:
        owners: uids of the objects that wait in the queue.
        reason: why it is not admitted yet, as one word; `message` is Kueue's sentence.
        evicted: why it was sent back into the queue, if it was, at `evicted_at` seconds since the epoch.
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
        """Its place in the queue while it is not admitted; `queue` is used if the Workload names no queue yet."""
        message = self.message
        if self.evicted:
            message = f"{message} (it was sent back: {self.evicted})".lstrip()
        return Waiting(self.queue or queue, self.reason, message, position)

    def position_in(self, positions: Mapping[str, int]) -> int | None:
        """Its position in the result of `read_positions`; None if that does not list it."""
        return min((positions[uid] for uid in self.owners if uid in positions), default=None)


def read_ticket(data: Fields) -> Ticket:
    """Reads a Workload of Kueue's."""
    meta, spec = part(data, "metadata"), part(data, "spec")
    told = conditions(part(data, "status"))
    reserved, evicted = told.get("QuotaReserved", {}), told.get("Evicted", {})
    admitted = holds(told.get("Admitted"))
    message = "" if admitted else one_line(text(reserved, "message"))
    if not admitted and holds(reserved):
        message = "quota is reserved; the queue's admission checks are not complete"
    if spec.get("active") is False:
        message = "its Workload is not active"
    return Ticket(
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

    Items do not state the Workload's uid. Anything that is not such a summary, or not such an item, is omitted.

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
