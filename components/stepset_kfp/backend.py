"""Selects the backend of a step's training: the cluster or this machine."""

from __future__ import annotations

from collections.abc import Mapping

from stepset.backends import BACKENDS
from stepset.errors import BadInputError

AUTO = "auto"


def in_kfp_pod(environ: Mapping[str, str]) -> bool:
    """Returns whether `environ` is that of a step's pod, in which KFP sets KFP_POD_NAME."""
    return bool(environ.get("KFP_POD_NAME") and environ.get("KUBERNETES_SERVICE_HOST"))


def backend_name(requested: str, environ: Mapping[str, str]) -> str:
    """Returns the requested backend; `auto` is the cluster in a step's pod, this machine elsewhere.

    Raises BadInputError for other names.
    """
    if requested == AUTO:
        return "kubernetes" if in_kfp_pod(environ) else "local"
    if requested not in BACKENDS:
        raise BadInputError(f"backend: {requested!r} is not known; use one of {', '.join((AUTO, *BACKENDS))}")
    return requested
