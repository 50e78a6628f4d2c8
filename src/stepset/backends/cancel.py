"""Stops a run and waits until it has finished. Every interface uses this function."""

from __future__ import annotations

from stepset.backends.base import Backend
from stepset.run_status import RunStatus


def cancel_and_wait(backend: Backend, name: str, *, kill: bool = False) -> tuple[bool, RunStatus]:
    """Stops a run. Returns whether the run had already finished, and the final status.

    A run in the phase Lost is also cancelled, because its ranks may still be running.

    Args:
        kill: whether to kill the ranks at once instead of giving them time to exit.
    """
    before = backend.cancel(name)
    if before.phase.final:
        return True, before
    if kill:
        backend.cancel(before.name)
    return False, backend.wait(before.name)
