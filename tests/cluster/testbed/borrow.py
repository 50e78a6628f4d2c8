"""A cluster for as long as something runs: the one that is there, or one that is brought up and taken down again.

Called by `tools/suite.py`, the whole suite.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from . import build, handle, lifecycle
from .layout import BORROWED_FILE, Choice

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def borrowed(required: bool) -> Iterator[None]:
    """Have a cluster while the block runs.

    One that KUBECONFIG names or that is up already is left as it is. One that this call brought up is taken down at the
    end of the block, however that ends; signals must have been turned into exceptions for that.

    Args:
        required: bring one up even where its binaries must be built first, which takes half an hour.

    Raises:
        NoClusterError: there is none; the message says how to get one.
        TestbedError: there is one and it cannot be used, or it cannot be brought up.
    """
    if handle.named():
        handle.find()
        yield
        return
    running = lifecycle.running()
    if running is not None and lifecycle.is_whole(running):
        yield
        return
    choice = Choice.from_environment()
    if not required:
        _refuse_what_takes_long(choice)
    seconds = lifecycle.up(choice)
    try:
        BORROWED_FILE.touch()
        print(f"a cluster for the tests: Kubernetes {choice.kubernetes}, JobSet {choice.jobset}, up in {seconds:.0f} s")
        yield
    finally:
        # Whoever is impatient now would leave a cluster behind.
        before = [signal.signal(number, signal.SIG_IGN) for number in _SIGNALS]
        try:
            lifecycle.down()
        finally:
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)


def _refuse_what_takes_long(choice: Choice) -> None:
    if os.geteuid() != 0:
        raise handle.NoClusterError("no Kubernetes cluster: run `make cluster` as root, or set KUBECONFIG")
    if missing := build.missing(choice.components):
        raise handle.NoClusterError(
            f"no Kubernetes cluster, and {', '.join(missing)} not built yet: run `make cluster`, or set"
            " STEPSET_CLUSTER=required"
        )
