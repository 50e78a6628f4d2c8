"""Decides whether a step runs its training on a cluster or on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from stepset.backends import BACKENDS
from stepset.errors import BadInputError

AUTO = "auto"


def in_kfp_pod(environ: Mapping[str, str]) -> bool:
    """Returns whether `environ` is the environment of a step's pod. KFP sets KFP_POD_NAME in such a pod."""
    return bool(environ.get("KFP_POD_NAME") and environ.get("KUBERNETES_SERVICE_HOST"))


def backend_name(requested: str, environ: Mapping[str, str]) -> str:
    """Returns the name of the backend.

    If the requested name is `auto`, the function returns `kubernetes` in a step's pod, and `local` elsewhere. Raises
    BadInputError if the requested name is neither `auto` nor a backend.
    """
    if requested == AUTO:
        return "kubernetes" if in_kfp_pod(environ) else "local"
    if requested not in BACKENDS:
        raise BadInputError(f"backend: {requested!r} is not known; use one of {', '.join((AUTO, *BACKENDS))}")
    return requested
