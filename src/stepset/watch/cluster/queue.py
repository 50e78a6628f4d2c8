"""What Kueue says of a run: its Workload, which stands in a queue for it.

Called by RunObjects. Source: sigs.k8s.io/kueue v0.16.2 apis/kueue/v1beta2/workload_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepset.watch.cluster.fields import Fields, conditions, holds, one_line, part, rows, text, time_of
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

    def waiting(self, queue: str) -> Waiting:
        """Its place in the queue, while it is not admitted.

        Args:
            queue: the queue's name as the run's object has it, for a Workload that names none yet.
        """
        message = self.message
        if self.evicted:
            message = f"{message} (it was sent back: {self.evicted})".lstrip()
        return Waiting(self.queue or queue, self.reason, message)


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
