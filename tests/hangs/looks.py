"""Samples the ranks of a pod, as its agent does, and classifies their hang, as the reader of the logs does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepset.agent.hangs.pod_ranks import ranks_of
from stepset.agent.hangs.processes import read_process
from stepset.agent.hangs.samples import sample
from stepset.agent.launch import hook_directory
from stepset.hang import Hang
from stepset.run_status import RankStatus
from stepset.watch.hangs.evidence import read_evidence
from stepset.watch.hangs.rules import hang_of

_LIMIT = 120.0


def pids_of(directory: Path) -> list[int]:
    """Returns the processes of the ranks of an agent, in the order of the ranks."""
    lines = (line.split() for line in (directory / "ranks").read_text().split("\n") if line)
    found = {int(rank): int(pid) for rank, pid in lines}
    return [found[rank] for rank in sorted(found)]


def hang_in(directory: Path, pids: Sequence[int], times: Iterable[float] = (0.0, 1.0)) -> Hang | None:
    """Returns the hang of a run, according to the stacks of its ranks. A rank that has exited succeeded.

    Args:
        directory: the directory of the agent of the only pod.
        pids: the process of each rank.
        times: when the samples are taken, in seconds. A process that waits for a core for longer does not progress.
    """
    ranks = ranks_of(str(directory), int((directory / "agent.pid").read_text()))
    running = [rank for rank, pid in enumerate(pids) if read_process(pid)]
    return hang_of_samples(sample(ranks, hook_directory(str(directory)), times), running, len(pids))


def hang_of_samples(samples: Mapping[Any, Mapping[str, Any]], running: Sequence[int], size: int = 0) -> Hang | None:
    """Returns the hang of a run, according to the samples of its ranks.

    Args:
        running: the ranks that run. Others have succeeded.
        size: the number of all ranks. By default, all are running.
    """
    evidence = {}
    for rank, each in samples.items():
        found = read_evidence({"at": time.time(), "silent": 310.2, "rank": rank, **each})
        if found is not None and found.rank is not None:
            evidence[found.rank] = found
    rows = [
        RankStatus(f"rank {rank}", rank, f"node-{rank}", state="Running" if rank in running else "Succeeded")
        for rank in range(size or len(running))
    ]
    return hang_of(rows, evidence)


def settled(found: Callable[[], Any]) -> Any:
    """Returns a value that two calls of `found` have returned."""
    before, value = object(), found()
    end = time.monotonic() + _LIMIT
    while value != before and time.monotonic() < end:
        before, value = value, found()
    return value


def places(hang: Hang | None) -> tuple[str, set[tuple[tuple[int, ...], str, str, int | None]]] | None:
    """Returns the class of a hang, and the ranks, state, process and line of each guilty group."""
    if hang is None:
        return None
    return str(hang.kind), {
        (each.ranks, each.state, each.process, each.frame.line if each.frame else None) for each in hang.guilty
    }


def lines_of(text: str) -> Iterator[int]:
    """Yields the numbers of the lines of a program that end with the comment HANGS."""
    return (number for number, line in enumerate(text.split("\n"), 1) if line.endswith("# HANGS"))
