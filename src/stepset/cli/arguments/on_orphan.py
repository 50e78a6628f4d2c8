"""The flag `--on-orphan` of `stepset run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.orphan_policy import OrphanStop

_FLAG = "--on-orphan"


def orphan_stop(given: str | None, backend: str, *, detach: bool) -> OrphanStop | None:
    """Returns how the cluster stops a run if this process terminates before the run is finished.

    Returns None if the run continues in this case, or if the run is local. Raises BadInputError if the value of the
    flag is unknown or not possible for the run (docs/design/orphans.md).
    """
    if given is None:
        return None
    from stepset.backends.kubernetes.orphans.own_pod import own_pod
    from stepset.backends.orphan_policy import OrphanStop, check_on_orphan

    check_on_orphan(given, _FLAG)
    if detach and given == "stop":
        raise BadInputError(f"{_FLAG}: a run with --detach has no process that could end; leave one of them out")
    if backend == "local":
        if given == "keep" and not detach:
            raise BadInputError(f"{_FLAG}: a local run ends with this process; add --detach, or leave the flag out")
        return None
    if given == "keep":
        return None
    pod = own_pod()
    if pod is None:
        raise BadInputError(
            f"{_FLAG}: stop requires that stepset runs in a pod of the cluster, because the API server cannot state"
            " whether another process has ended; limit the run by `deadline`, or run stepset in a Kubernetes Job"
        )
    return OrphanStop(pod, "delete")
