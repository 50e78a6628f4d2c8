"""Reads the Kueue Workload of a run, and its position in a queue.

Sources: sigs.k8s.io/kueue v0.16.2 apis/kueue/v1beta2/workload_types.go, v0.18.2 apis/visibility/v1beta2/types.go
(v1beta1 has the same fields).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field, structs

from stepset.run_status import Waiting
from stepset.unstructured import Fields, conditions, holds, number, one_line, part, rows, text
from stepset.watch.present.queue_remedies import change_needed

_GIVEN_UP = "DeactivatedDueTo"
"""Prefix of the reason for an eviction if Kueue itself deactivated the Workload (v0.18.2 pkg/workload/workload.go)."""

_PREVIOUSLY = "Previously: "
_PREEMPTED = re.compile(
    r"Preempted to accommodate a workload \(UID: [^()]*?(?:, JobUID: ([\w-]+))?\) due to ([^;]*)"
    r"(?:; preemptor path: [^;]*; preemptee path: [^;]*)?"
)
"""Kueue's message about a preemption (v0.18.2 pkg/scheduler/preemption/preemption.go preemptionMessage)."""
_BY_ANOTHER = "preempted by another workload"
_INACTIVE_QUEUE = re.compile(r"(?:Local|Cluster)Queue \S+ is (?:inactive|stopped)$")
"""Kueue's message about an inactive queue. An administrator may have stopped the queue for maintenance. The message
does not distinguish such a queue from a queue without a ResourceFlavor."""


class KueueWorkload(Struct, frozen=True):
    """A Workload of Kueue.

    Args:
        owners: the uids of the objects that wait in the queue.
        reason: one word that states why Kueue has not admitted the Workload.
        message: the sentence of Kueue that explains the reason.
        evicted: why Kueue has evicted the Workload, or "" if Kueue has not evicted the Workload.
        evicted_before: the reason of an earlier eviction after which Kueue reserved quota again. It is "" if there was
            no such eviction.
        preemptor: the uid of the object for which Kueue has preempted the Workload, or "" if it is unknown.
        change: the change that a user must make before Kueue can admit the Workload. It is "" if Kueue may admit the
            Workload although no user makes a change.
        paused: whether the Workload may be admitted later although it needs a change. For example, an administrator has
            stopped its queue for a while, or a user has deactivated the Workload. False if Kueue has deactivated it.
        requests: the quantity of each resource that all pods of the Workload request together. The keys are the names
            of the resources. The mapping is empty when the Workload is admitted.
    """

    uid: str
    owners: tuple[str, ...]
    queue: str
    admitted: bool
    reason: str
    message: str
    evicted: str
    evicted_before: str = ""
    preemptor: str = ""
    change: str = ""
    paused: bool = False
    requests: Mapping[str, str] = field(default_factory=dict)

    def waiting(self, queue: str, position: int | None = None) -> Waiting:
        """Returns the state of the Workload in its queue before the admission.

        `queue` is the name of the queue. It is used only if the Workload does not contain the name yet. After a
        preemption, the conditions `QuotaReserved` and `Evicted` contain the same sentence. Then the message contains
        this sentence once.
        """
        message = self.message
        if self.evicted and self.evicted not in message:
            message = f"{message} (evicted: {self.evicted})".lstrip()
        return Waiting(self.queue or queue, self.reason, message, position, self.change, dict(self.requests))

    def naming(self, preemptor: str) -> KueueWorkload:
        """Returns the Workload with the name of the object for which Kueue has preempted the Workload.

        `preemptor` is the kind and the name of this object, such as `JobSet digits-1`, or "" if they are unknown.
        """
        if not preemptor:
            return self
        message, evicted, before = (
            each.replace(_BY_ANOTHER, f"preempted by {preemptor}")
            for each in (self.message, self.evicted, self.evicted_before)
        )
        return structs.replace(self, message=message, evicted=evicted, evicted_before=before)

    def position_in(self, positions: Mapping[str, int]) -> int | None:
        """Returns the position of the Workload in a result of `read_positions`, or None if the position is missing."""
        return min((positions[uid] for uid in self.owners if uid in positions), default=None)


def read_kueue_workload(data: Fields) -> KueueWorkload:
    """Reads a Kueue Workload."""
    meta, spec = part(data, "metadata"), part(data, "spec")
    by_type = conditions(part(data, "status"))
    reserved, evicted = by_type.get("QuotaReserved", {}), by_type.get("Evicted", {})
    admitted = holds(by_type.get("Admitted"))
    given_up = holds(evicted) and text(evicted, "reason").startswith(_GIVEN_UP)
    why, message, change = _sentence(reserved), "", ""
    if not admitted and holds(reserved):
        message = "quota is reserved; the queue's admission checks are not complete"
    elif not admitted:
        message = why
        change = change_needed(text(reserved, "reason"), text(reserved, "message"))
    if spec.get("active") is False:
        message = "its Workload is not active"
        patch = f"""kubectl patch workloads.kueue.x-k8s.io {text(meta, "name")} --type merge -p"""
        change = f"""{patch} '{{"spec": {{"active": true}}}}' activates it"""
    return KueueWorkload(
        uid=text(meta, "uid"),
        owners=tuple(text(row, "uid") for row in rows(meta, "ownerReferences")),
        queue=text(spec, "queueName"),
        admitted=admitted,
        reason="" if admitted else text(reserved, "reason"),
        message=message,
        evicted=_sentence(evicted) or text(evicted, "reason") if holds(evicted) else "",
        evicted_before="" if holds(evicted) else _before(_sentence(evicted)),
        preemptor=(found[1] or "") if (found := _PREEMPTED.search(one_line(text(evicted, "message")))) else "",
        change="" if admitted else change,
        paused=not given_up and (holds(evicted) or _INACTIVE_QUEUE.match(why) is not None),
        requests={} if admitted else _requests(rows(spec, "podSets")),
    )


def _requests(pod_sets: Sequence[Fields]) -> dict[str, str]:
    """Returns the quantity of each resource that the pods of all pod sets request together.

    Other users can create Workloads, so the pod sets may be invalid. If they are invalid, the result is empty.
    """
    from stepset.targets.quantities import pod_requests, total  # loads pydantic, which is slow to import

    try:
        each_pod = [(pod_requests(part(each, "template", "spec")), number(each, "count")) for each in pod_sets]
        if any(count < 0 or any(amount < 0 for amount in amounts.values()) for amounts, count in each_pod):
            return {}
        return total(each_pod)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return {}


def _sentence(condition: Fields) -> str:
    """Returns the message of a condition. The message about a preemption contains no uids and no paths of queues.

    >>> why = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
    >>> _sentence({"message": f"Previously: {why}; preemptor path: /a; preemptee path: /a"})
    'Previously: preempted by another workload due to prioritization in the ClusterQueue'
    """
    return _PREEMPTED.sub(rf"{_BY_ANOTHER} due to \2", one_line(text(condition, "message")))


def _before(message: str) -> str:
    """Returns the reason of an earlier eviction, which Kueue keeps in the message of the condition `Evicted`.

    Returns "" if the message has another form (kueue v0.18.2 pkg/workload/workload.go resetActiveCondition).

    >>> _before("Previously: preempted by another workload")
    'preempted by another workload'
    """
    return message.removeprefix(_PREVIOUSLY) if message.startswith(_PREVIOUSLY) else ""


def read_positions(summary: object) -> dict[str, int]:
    """Reads the PendingWorkloadsSummary of a LocalQueue.

    Returns a mapping from the uid of a Workload's owner to the position of the Workload. The first position is 1. The
    items of a summary do not contain the uid of the Workload. Invalid summaries and items are ignored.

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
