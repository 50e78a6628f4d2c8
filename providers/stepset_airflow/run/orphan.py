"""Determines what happens to a run if the pod of the worker terminates before the run has finished.

docs/design/orphans.md describes the mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.backends.orphan_policy import OrphanStop

NOT_IN_A_POD = (
    "on_orphan: stop is not available, the run continues when its owner has ended: the worker does not run in a pod"
)


def orphan_stop(on_orphan: str, on_kill_action: str) -> OrphanStop | None:
    """Returns how the run is stopped if the pod of the worker terminates. Returns None if the run is not stopped.

    The result is None if `on_orphan` is `keep`, or if the worker does not run in a pod.
    """
    if on_orphan != "stop":
        return None
    from stepset.backends.kubernetes.orphans.own_pod import own_pod
    from stepset.backends.orphan_policy import OrphanStop

    pod = own_pod()
    return None if pod is None else OrphanStop(pod, "suspend" if on_kill_action == "suspend" else "delete")
