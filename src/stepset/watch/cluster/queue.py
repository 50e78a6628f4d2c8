"""What Kueue says of a run: its Workload, which stands in a queue for it.

Called by RunObjects. Source: sigs.k8s.io/kueue v0.16.2 apis/kueue/v1beta2/workload_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepset.watch.cluster.fields import Fields, conditions, holds, one_line, part, rows, text, time_of


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in a queue.

    Args:
        uid: of Kueue's Workload.
        owners: uids of what stands in the queue.
        queue: the queue's name.
        admitted: it may run.
        message: why it may not yet, in Kueue's words.
        evicted: why it was sent back into the queue, where it was.
        evicted_at: when, in seconds since the epoch.
    """

    uid: str
    owners: tuple[str, ...]
    queue: str
    admitted: bool
    message: str
    evicted: str
    evicted_at: float | None


def read_ticket(data: Fields) -> Ticket:
    """Reads a Workload of Kueue's."""
    meta, spec = part(data, "metadata"), part(data, "spec")
    told = conditions(part(data, "status"))
    reserved, evicted = told.get("QuotaReserved", {}), told.get("Evicted", {})
    admitted = holds(told.get("Admitted"))
    message = "" if admitted else one_line(text(reserved, "message"))
    if not admitted and holds(reserved):
        message = "waits for the queue's admission checks"
    if spec.get("active") is False:
        message = "was taken out of the queue (its Workload is not active)"
    return Ticket(
        uid=text(meta, "uid"),
        owners=tuple(text(row, "uid") for row in rows(meta, "ownerReferences")),
        queue=text(spec, "queueName"),
        admitted=admitted,
        message=message,
        evicted=one_line(text(evicted, "message")) or text(evicted, "reason") if holds(evicted) else "",
        evicted_at=time_of(evicted, "lastTransitionTime") if holds(evicted) else None,
    )
