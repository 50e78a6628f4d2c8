"""The backends that run jobs, on this machine or on Kubernetes. `backend_of` returns a backend by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend, ClusterOptions
    from stepset.backends.option_names import Interface

BACKENDS = ("local", "kubernetes")


def backend_of(
    name: str, cluster: ClusterOptions | None = None, interface: Interface = "python", *, read_only: bool = False
) -> Backend:
    """Returns the backend with this name. Sends no request to a cluster.

    Args:
        interface: the interface of the caller, which determines the names of options and of commands in error messages.
        read_only: whether the caller only reads runs. Then the command in an error about a missing permission grants
            only the permissions to read runs.

    Raises:
        BadInputError: the name is unknown, or cluster options are given for a backend other than `kubernetes`.
    """
    if name == "local":
        from stepset.backends.base import ClusterOptions
        from stepset.backends.local import LocalBackend

        if cluster not in (None, ClusterOptions()):
            raise BadInputError("cluster: requires backend='kubernetes'; give that backend, or leave cluster out")
        return LocalBackend(interface=interface)
    if name == "kubernetes":
        from stepset.backends.kubernetes import kubernetes_backend

        return kubernetes_backend(cluster, interface, read_only=read_only)
    hint = "" if isinstance(name, str) else "; arguments of a function belong into args, such as args=[0.2]"
    raise BadInputError(f"backend: {name!r} is not known; use one of {', '.join(BACKENDS)}{hint}")
