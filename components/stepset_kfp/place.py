"""Where a step's training runs. Called by step.py."""

from __future__ import annotations

from collections.abc import Mapping

from stepset.backends import BACKENDS
from stepset.errors import BadInputError

AUTO = "auto"


def in_kfp_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a step's pod: KFP names it (KFP_POD_NAME), Kubernetes says where its server is."""
    return bool(environ.get("KFP_POD_NAME") and environ.get("KUBERNETES_SERVICE_HOST"))


def backend_name(asked: str, environ: Mapping[str, str]) -> str:
    """`local` or `kubernetes`.

    Args:
        asked: one of them, or `auto`: the cluster in a step's pod, this machine elsewhere.
        environ: the step's variables.

    Raises:
        BadInputError: none of these.
    """
    if asked == AUTO:
        return "kubernetes" if in_kfp_pod(environ) else "local"
    if asked not in BACKENDS:
        raise BadInputError(f"backend: {asked!r} is not known; use one of {', '.join((AUTO, *BACKENDS))}")
    return asked
