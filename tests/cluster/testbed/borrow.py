"""Provides a cluster for the duration of a block: a running one, or one that is started and stopped again."""

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
    """Provides a cluster while the block runs.

    A cluster that KUBECONFIG names or that is running already is not changed. A cluster that this call started is
    stopped at the end of the block, also after an exception; the caller must have turned signals into exceptions.

    Args:
        required: start a cluster even if its binaries must be built first, which takes half an hour.

    Raises:
        NoClusterError: no cluster is available; the message states how to get one.
        TestbedError: the cluster cannot be used or started.
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
        # A second Ctrl-C during `down` would leave a cluster behind.
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
