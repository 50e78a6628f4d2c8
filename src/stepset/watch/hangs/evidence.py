"""Reads the events `stalled`, in which an agent reports what a rank without progress does.

A rank can forge events of its own pod, so that an event has smaller limits than a document. An event that does not
state a time is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.unstructured import integer, moment, text
from stepset.watch.stacks.document import RankReader, seconds
from stepset.watch.stacks.model import StackCollective, StackProcess

_FRAMES, _PROCESSES = 1000, 64
"""The maximum number of frames of all threads, and of processes."""
_NAME, _PATH = 100, 200
"""The maximum number of characters of a name, and of the end of a path or of a reason."""


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What a rank did while its pod made no progress. `rank` is None for the launcher of a pod without ranks."""

    rank: int | None
    at: float
    silent: float
    longest: float = 0.0
    processes: tuple[StackProcess, ...] = ()
    collectives: tuple[StackCollective, ...] = ()
    master: str = ""


def read_evidence(event: Mapping[str, Any]) -> RankEvidence | None:
    """Returns the evidence in an event `stalled`. Returns None if its time or its rank is invalid."""
    at, rank = moment(event, "at"), event.get("rank")
    if at is None or (rank is not None and (integer(event, "rank") is None or rank < 0)):
        return None
    found = RankReader(_FRAMES, _PROCESSES, _NAME, _PATH).rank(rank or 0, event)
    return RankEvidence(
        rank=rank,
        at=at,
        silent=seconds(event, "silent"),
        longest=seconds(event, "longest"),
        processes=found.processes,
        collectives=found.collectives,
        master=text(event, "master")[:_PATH],
    )
