"""A cluster for as long as something runs: the one that is there, or one that is brought up and taken down again.

Called by `tools/test.py`, the whole suite.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import build, handle, lifecycle
from .layout import Choice

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def borrowed(required: bool) -> Iterator[None]:
    """Have a cluster while the block runs.

    One that KUBECONFIG names or that is up already is left as it is. One that this call brought up is taken down at the
    end of the block, however that ends; signals must have been turned into exceptions for that.

    Args:
        required: bring one up even where its binaries must be built first, which takes half an hour.

    Raises:
        NoClusterError: there is none; the message says how to get one. Never where it is required.
        TestbedError: it is required, or could be there, and cannot be brought up.
    """
    if _is_there():
        yield
        return
    choice = Choice.from_environment()
    if not required:
        _refuse_what_takes_long(choice)
    try:
        seconds = lifecycle.up(choice)
        print(f"a cluster for the tests: Kubernetes {choice.kubernetes}, JobSet {choice.jobset}, {seconds:.0f} s")
        yield
    finally:
        # Whoever is impatient now would leave a cluster behind.
        before = [signal.signal(number, signal.SIG_IGN) for number in _SIGNALS]
        try:
            lifecycle.down()
        finally:
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)


def _is_there() -> bool:
    with suppress(handle.NoClusterError):
        cluster = handle.find()
        return cluster.choice is None or lifecycle.is_whole(cluster.choice)
    return False


def _refuse_what_takes_long(choice: Choice) -> None:
    if os.environ.get("KUBECONFIG") and os.environ["KUBECONFIG"] != str(handle.KUBECONFIG):
        handle.find()  # says what is missing
    if os.geteuid() != 0:
        raise handle.NoClusterError("no Kubernetes cluster: run `make cluster` as root, or set KUBECONFIG")
    if missing := build.missing(choice.components):
        raise handle.NoClusterError(
            f"no Kubernetes cluster, and its binaries are not built yet ({', '.join(missing)}): run `make cluster`,"
            " or set STEPSET_CLUSTER=required"
        )
