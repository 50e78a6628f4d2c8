"""Where a plan runs: as processes on this machine, or on Kubernetes. Every door asks here for the backend it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import Backend


def backend_of(name: str) -> Backend:
    """The backend of that name; nothing of it is imported before.

    Args:
        name: `local`.

    Raises:
        BadInputError: there is none of that name.
    """
    if name == "local":
        from stepset.backends.local import LocalBackend

        return LocalBackend()
    raise BadInputError(f"backend: {name!r} is not known; use local")
