"""A run's logs followed without the run: as they come, until its verdict.

Called by log_reading for `stepset logs --follow`. Nothing is written to the cluster: whoever started the run does that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.backends.kubernetes.hearing import Hearing
from stepset.backends.kubernetes.site import Site
from stepset.errors import InfrastructureError
from stepset.watch.lines import Batch

_LOOK = 1.0
"""Seconds between two looks whether the run is over: a busy one says much, and the look is not for nothing."""

Manifest = Mapping[str, Any]


def followed(site: Site, workload: Manifest, sources: frozenset[str] | None) -> Iterator[tuple[str, Batch]]:
    """What a run's pods print, with the pod's uid, until the run is over.

    Args:
        site: where the run is.
        workload: its object on top, as it was read.
        sources: only pods that may hold lines of these are read; None: all.

    Raises:
        InfrastructureError: the server does not let whoever asks look; some of the logs could not be read.
    """
    with Hearing(site, workload, sources) as hearing:
        looked = 0.0
        while True:
            for each in hearing.take(_LOOK):
                yield each.pod, each.batch
            now = time.monotonic()
            if hearing.complete and now - looked > _LOOK:
                looked = now
                if hearing.status(time.time()).phase.final and not hearing.leaving(time.time()):
                    break
        for each in hearing.rest():
            yield each.pod, each.batch
        if hearing.problems:
            raise InfrastructureError(hearing.problems[0])
