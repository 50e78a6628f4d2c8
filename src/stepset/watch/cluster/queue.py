"""What Kueue says of a run: its Workload, which stands in a queue for it, and the Workload's position there.

Called by RunObjects, and by whoever asks for positions. Sources: sigs.k8s.io/kueue v0.16.2
apis/kueue/v1beta2/workload_types.go, v0.18.2 apis/visibility/v1beta2/types.go (v1beta1 has the same fields).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.watch.cluster.fields import Fields, conditions, holds, number, one_line, part, rows, text, time_of
from stepset.watch.state import Waiting


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in a queue.

    Args:
        uid: of Kueue's Workload.
        owners: uids of what stands in the queue.
        queue: the queue's name.
        admitted: it may run.
        reason: why it may not yet, as one word of Kueue's.
        message: the same in Kueue's words.
        evicted: why it was sent back into the queue, where it was.
        evicted_at: when, in seconds since the epoch.
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
        """Its place in the queue, while it is not admitted.

        Args:
            queue: the queue's name as the run's object has it, for a Workload that names none yet.
            position: its position in the queue, from 1; None: not known.
        """
        message = self.message
        if self.evicted:
            message = f"{message} (it was sent back: {self.evicted})".lstrip()
        return Waiting(self.queue or queue, self.reason, message, position)

    def position_in(self, positions: Mapping[str, int]) -> int | None:
        """Its position; None where the summary does not list it.

        Args:
            positions: as `read_positions` returned them.
        """
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
    """Reads a PendingWorkloadsSummary of a LocalQueue.

    Args:
        summary: any JSON value; what is no such summary, or no such item, is left out.

    Returns:
        The uid of a Workload's owner -> its position in the LocalQueue, from 1. Items do not state the Workload's uid.

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
