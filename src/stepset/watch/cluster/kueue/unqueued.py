"""Describes a suspended run for which Kueue has created no Workload. Contains only pure code.

In two cases, Kueue v0.18 creates no Workload and reports no reason (sigs.k8s.io/kueue v0.18.2
pkg/util/priority/priority.go):

- The WorkloadPriorityClass of the run does not exist.
- The run has no WorkloadPriorityClass, and the PriorityClass of its pods does not exist.
"""

from __future__ import annotations

from msgspec import Struct

from stepset.watch.advice import CREATE_ADVICE

_MANAGE = "have an administrator let Kueue manage this kind of workload, or run the job without a queue."
_MANAGE_ADVICE = _MANAGE[0].upper() + _MANAGE[1:]
_CLASS_ADVICE = (
    "If the class that the message names does not exist, create it, or use one that exists (labels, or priority_class"
    f" of scheduling), and run the job again; if it exists, {_MANAGE}"
)


class Unqueued(Struct, frozen=True):
    """What is known about a suspended run without a Workload.

    Args:
        confirmed: whether it is certain that the run has no Workload. False if the Workloads cannot be read, for
            example because the account has no permission to read them.
        missing: the priority classes that do not exist, as a sentence with the remedy; "" if there are none.
        unread: the priority classes that the account has no permission to read, such as `PriorityClass high`.
        grant: the command that grants the permission to read these classes; "" if it is not needed.
    """

    confirmed: bool
    missing: str = ""
    unread: tuple[str, ...] = ()
    grant: str = ""

    @property
    def advice(self) -> str:
        """What the user can do."""
        if self.missing:
            return CREATE_ADVICE
        if not self.unread:
            return _MANAGE_ADVICE
        grant = f" To let stepset check the class, have an administrator run: {self.grant}" if self.grant else ""
        return f"{_CLASS_ADVICE}{grant}"

    def sentence(self, queue: str, kind: str) -> str:
        """Returns why a run with a workload of this kind has no place in its queue, and what to check."""
        start = f"the run is suspended and has no place in queue {queue}"
        if self.missing:
            return f"{start}: {self.missing}"
        verb = "exist" if len(self.unread) > 1 else "exists"
        classes = f"{' and '.join(self.unread)} {verb}, and that " if self.unread else ""
        return f"{start}: check that {classes}Kueue manages {kind}s in this cluster"
