"""Converts lists of ranks, such as `0,2-3,launcher`, into the sources of log lines. Contains only pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stepset.errors import BadInputError
from stepset.run_status import RunStatus

_MAX_RANKS = 100_000
"""The maximum number of ranks in one range. A typing error such as `0-3000000000` must not exhaust the memory."""
_SHOWN = 10
"""The maximum number of pods in an error message."""
_RANK_OR_NODE = re.compile(r"(?:rank|node) \d+")
_NAME = re.compile(r"(?:rank|node) \d+|[a-z][-a-z0-9]*")
"""The form of a source (docs/design/agent.md)."""


def sources_of(text: str, place: str = "ranks") -> frozenset[str]:
    """Returns the sources that a list of ranks selects.

    >>> sorted(sources_of("0,2-3,launcher"))
    ['launcher', 'rank 0', 'rank 2', 'rank 3']

    Raises:
        BadInputError: the list is invalid. The message starts with `place`.
    """
    sources: set[str] = set()
    for word in (w.strip() for w in text.split(",")):
        first, dash, last = word.partition("-")
        if word.isdecimal():
            sources.add(f"rank {int(word)}")
        elif dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            if int(last) - int(first) >= _MAX_RANKS:
                raise BadInputError(f"{place}: {word!r} is more than {_MAX_RANKS} ranks; leave {place} out for all")
            sources.update(f"rank {n}" for n in range(int(first), int(last) + 1))
        elif word and not word[0].isdigit():
            sources.add(word)
        else:
            raise BadInputError(f"{place}: {word!r} is neither a rank nor a range; write it like 0,2 or 0-3")
    return frozenset(sources)


def check_sources(sources: frozenset[str], run: RunStatus, place: str = "ranks") -> None:
    """Raises BadInputError if the run has no rank or pod with the name of a source.

    More pods may be created until a run on a cluster has finished. Therefore only the form of pod names is checked.

    >>> from stepset.run_status import RankStatus
    >>> run = RunStatus("mpi-1", "mpi", "local", ranks=(RankStatus("launcher", None, "launcher"),))
    >>> check_sources(frozenset({"lancher"}), run)
    Traceback (most recent call last):
    stepset.errors.BadInputError: ranks: mpi-1 has no source 'lancher'; it has launcher
    """
    known = {row.source for row in run.ranks} if run.phase.final or run.backend == "local" else set()
    for name in sorted(sources):
        if not _NAME.fullmatch(name) or (known and name not in known and not _RANK_OR_NODE.fullmatch(name)):
            raise BadInputError(f"{place}: {run.name} has no source {name!r}{_existing(run, name)}")
    _check_ranks(sources, run, place)


def _existing(run: RunStatus, name: str) -> str:
    """Returns the end of an error message that lists the sources of a run, or the ranks of the pod `name`."""
    if in_pod := [str(row.rank) for row in run.ranks if row.rank is not None and row.pod == name]:
        return f"; it is a pod with {'rank' if len(in_pod) == 1 else 'ranks'} {','.join(in_pod[:_SHOWN])}"
    others = [row.source for row in run.ranks if row.rank is None][:_SHOWN]
    names = [_ranks_of(run.world_size), *others] if run.world_size else others
    return f"; it has {', '.join(names)}" if names else "; write ranks like 0,2 or 0-3"


def _ranks_of(world_size: int) -> str:
    return f"ranks 0 to {world_size - 1}" if world_size > 1 else "rank 0 alone"


def _check_ranks(sources: frozenset[str], run: RunStatus, place: str) -> None:
    numbers = {int(source.removeprefix("rank ")) for source in sources if source.startswith("rank ")}
    if not run.world_size or any(row.rank in numbers for row in run.ranks):
        return
    check_ranks(numbers, run.world_size, run.name, place)


def check_ranks(numbers: Iterable[int], world_size: int, name: str, place: str) -> None:
    """Raises BadInputError if a rank does not exist.

    Args:
        world_size: the number of ranks of the run or of the job.
        name: the name of the run or of the job, for the message.
        place: the start of the message.
    """
    beyond = min((n for n in numbers if n >= world_size), default=None)
    if beyond is not None:
        raise BadInputError(f"{place}: {name} has no rank {beyond}; it has {_ranks_of(world_size)}")
