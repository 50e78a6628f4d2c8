"""Rejects options that have no effect if no process waits for a run on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepset.defaults import STARTUP_TIMEOUT
from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset.backends.base import ClusterOptions


def unenforced_timeout(place: str, cause: str, remedy: str) -> BadInputError:
    """Returns the error for a timeout that no process enforces, because no process waits for the run.

    Args:
        place: the name that the timeout has in the caller's interface.
        cause: the reason why no process waits for the run, such as `with --detach`.
        remedy: what the caller can change to avoid the error.
    """
    return BadInputError(
        f"{place}: {cause} no process waits for the run and enforces the timeout; {remedy}, or set `deadline` in the"
        " job, which limits the run's duration without the time in a queue"
    )


def check_submitted(options: ClusterOptions | None) -> None:
    """Raises BadInputError if an option is given that has no effect on a run of `stepset.submit`."""
    if options is None:
        return
    limits = {"admission_timeout": options.admission_timeout}
    if options.startup_timeout != STARTUP_TIMEOUT:
        limits["startup_timeout"] = options.startup_timeout
    for name, seconds in limits.items():
        if seconds is not None:
            raise unenforced_timeout(f"cluster.{name}", "after submit", "call run, leave the timeout out")
    if options.sources is not None:
        raise BadInputError(
            "cluster.sources: submit reads no lines of the run; leave it out, and give ranks to the method logs of the"
            " returned Run"
        )
