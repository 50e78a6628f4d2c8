"""Where a plan runs: as processes on this machine, or on Kubernetes. Every door asks here for the backend it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend, ClusterOptions

BACKENDS = ("local", "kubernetes")


def backend_of(name: str, cluster: ClusterOptions | None = None) -> Backend:
    """The backend of that name; nothing of it is imported before, and no server is asked anything yet.

    Args:
        name: `local` or `kubernetes`.
        cluster: which cluster; for `kubernetes` only.

    Raises:
        BadInputError: there is none of that name, or no cluster is named.
    """
    if name == "local":
        from stepset.backends.local import LocalBackend

        return LocalBackend()
    if name == "kubernetes":
        from stepset.backends.kubernetes import kubernetes_backend

        return kubernetes_backend(cluster)
    raise BadInputError(f"backend: {name!r} is not known; use one of {', '.join(BACKENDS)}")
