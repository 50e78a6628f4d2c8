"""Decides whether Kueue can admit a Workload as it is. If not, names the necessary change. Contains only pure code.

The decision is based on Kueue's message. The reason of the condition QuotaReserved is not sufficient. Up to v0.18,
Kueue reports the same reason for a request above the queue's maximum and for a request to a busy queue. In later
versions, the two reasons differ only if a feature gate is enabled. If this module does not recognize a message or a
part of a message, it assumes that Kueue will admit the Workload later. The reasons in `_INACTIVE` are an exception.

Sources: sigs.k8s.io/kueue v0.18.2 pkg/scheduler/flavorassigner/flavorassigner.go (checkFlavorForPodSets,
fitsResourceQuota), pkg/scheduler/scheduler.go (nominate), pkg/controller/core/workload_controller.go; the same files of
v0.9.5 and v0.19.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LONGEST = 10_000
"""The maximum number of characters of a message that is examined."""
_INACTIVE = ("Inadmissible", "Misconfigured", "Suspended")
"""Kueue's reasons for three cases: a queue does not exist, a queue is stopped, or Kueue does not support a request."""
_OTHER_QUEUE = "use a queue that `kubectl get localqueues` lists"

_Remedy = str | Callable[[str], str]

# Messages about the whole Workload. If a remedy is a function, its argument is the name in the message.
_WHOLE: tuple[tuple[re.Pattern[str], _Remedy], ...] = (
    (
        re.compile(r"LocalQueue (\S+) (?:doesn't exist|is terminating or missing)$"),
        lambda name: f"create LocalQueue {name}, or {_OTHER_QUEUE}",
    ),
    (
        re.compile(r"LocalQueue (\S+) is (?:inactive|stopped)$"),
        lambda name: f"have an administrator resume it (`kubectl describe localqueue {name}`), or use another queue",
    ),
    (
        re.compile(r"ClusterQueue (\S+) (?:doesn't exist|is terminating or missing|not found)$"),
        lambda name: f"have an administrator create ClusterQueue {name}, or use another queue",
    ),
    (
        re.compile(r"ClusterQueue (\S+) is (?:inactive|stopped)$"),
        lambda name: (
            f"`kubectl describe clusterqueue {name}` states why, for example that it is stopped or that a"
            " ResourceFlavor is missing; have an administrator fix it, or use another queue"
        ),
    ),
    (
        re.compile(r"Workload namespace doesn't match ClusterQueue selector$"),
        "have an administrator include this namespace in the ClusterQueue's namespaceSelector, or use another queue",
    ),
    (
        re.compile(r"resources (?:validation failed|didn't satisfy LimitRange constraints): (.*)$"),
        "change resources_per_node, or have the namespace's LimitRange changed",
    ),
)

_POD_SET = re.compile(r"(?:^|; )couldn't assign flavors to pod set [\w.-]{1,300}: ")
_UNAVAILABLE = re.compile(r"resource (\S{1,300}) unavailable in ClusterQueue")
_QUOTA = r"insufficient quota for \S{1,300} in flavor ([\w.-]{1,300}), "
# Each pair contains a reason why Kueue cannot use a flavor, and the change that solves the problem.
_EXCLUDED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            _QUOTA + r"(?:previously considered podsets requests \([^()]{0,99}\) \+ current podset request"
            r" \([^()]{0,99}\) > maximum capacity \([^()]{0,99}\)|request > maximum capacity \([^()]{0,99}\))"
        ),
        "request less (resources_per_node, num_nodes), or have the quota raised",
    ),
    (
        re.compile(r"untolerated taint \{[^{}]{0,999}\} in flavor ([\w.-]{1,300})"),
        "tolerate the flavor's taint in scheduling.tolerations",
    ),
    (
        re.compile(r"flavor ([\w.-]{1,300}) doesn't match node affinity"),
        "match the flavor's labels in scheduling.node_selector or affinity",
    ),
    (
        re.compile(r"flavor ([\w.-]{1,300}) not found"),
        "have an administrator create the ResourceFlavor",
    ),
    (
        re.compile(
            r'Flavor "([\w.-]{1,300})" (?:does not support TopologyAwareScheduling|does not contain the requested level'
            r"|supports only TopologyAwareScheduling)"
        ),
        "fix the topology annotation of the pods",
    ),
)
_BUSY = re.compile(r"insufficient unused quota for \S{1,300} in flavor ([\w.-]{1,300}), \S{1,99} more needed")


def change_needed(reason: str, message: str) -> str:
    """Returns the change without which Kueue cannot admit a Workload, or "" if Kueue may admit the Workload later.

    Args:
        reason: the reason of the Workload's condition QuotaReserved.
        message: the message of the same condition.

    >>> change_needed("Inadmissible", "LocalQueue nope doesn't exist")
    'create LocalQueue nope, or use a queue that `kubectl get localqueues` lists'
    >>> unused = "insufficient unused quota for cpu in flavor f, 1 more needed"
    >>> change_needed("Pending", f"couldn't assign flavors to pod set node: {unused}")
    ''
    """
    words = " ".join(message[:_LONGEST].split())
    if len(message) <= _LONGEST:
        for pattern, remedy in _WHOLE:
            if found := pattern.match(words):
                return remedy if isinstance(remedy, str) else remedy(found[1])
        intro, *pod_sets = _POD_SET.split(words)
        changes = [change for each in pod_sets if not intro and (change := _of_pod_set(each))]
        if changes:
            return "; ".join(dict.fromkeys(changes))
    return "have an administrator check the LocalQueue and its ClusterQueue" if reason in _INACTIVE else ""


def _of_pod_set(reasons: str) -> str:
    """Returns the change that a user must make before Kueue can assign a flavor to a pod set.

    Returns "" if Kueue may be able to assign a flavor later although no user makes a change.
    """
    if found := _UNAVAILABLE.search(reasons):
        return f"the queue has no quota for {found[1]}: do not request it, have quota added, or use another queue"
    excluded: set[str] = set()
    changes = []
    rest = reasons
    for pattern, change in _EXCLUDED:
        if names := pattern.findall(rest):
            excluded.update(names)
            changes.append(change)
            rest = pattern.sub("", rest)
    # One flavor may have too little free quota for one resource, and too little total quota for another resource.
    busy = set(_BUSY.findall(rest)) - excluded
    rest = _BUSY.sub("", rest)
    return "" if busy or rest.strip(" ,") else ", or ".join(changes)
