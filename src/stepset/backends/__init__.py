"""The backends: processes on this machine, or Kubernetes; `backend_of` selects one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend, ClusterOptions

BACKENDS = ("local", "kubernetes")


def backend_of(name: str, cluster: ClusterOptions | None = None) -> Backend:
    """Returns the backend `name`; sends no request. Raises BadInputError for an unknown name."""
    if name == "local":
        from stepset.backends.local import LocalBackend

        return LocalBackend()
    if name == "kubernetes":
        from stepset.backends.kubernetes import kubernetes_backend

        return kubernetes_backend(cluster)
    raise BadInputError(f"backend: {name!r} is not known; use one of {', '.join(BACKENDS)}")
