"""One training on a cluster, for a step. Called by step.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener, RunRequest
from stepset.watch.state import RunStatus


def run_on_cluster(request: RunRequest, given: Mapping[str, Any], listener: RunListener) -> RunStatus:
    """Runs to the end.

    Args:
        request: what to run.
        given: the component's inputs.
        listener: is told of lines and changes.

    Raises:
        BadInputError: the job, or the server for its sake, says no.
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    options = ClusterOptions(
        namespace=given["namespace"] or None,
        target=given["target"] or None,
        admission_timeout=given["admission_timeout"] or None,
        startup_timeout=given["startup_timeout"] or None,
    )
    handle = backend_of("kubernetes", options).start(request, listener)
    try:
        return handle.wait()
    except BaseException:
        handle.cancel()
        handle.wait()
        raise
