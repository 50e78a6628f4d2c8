"""Two commands in turn, A B A B ..., so that their ratio holds while the machine's speed drifts."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One run of a command. Seconds."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Pair:
    """What two commands took, run for run."""

    ours: tuple[Sample, ...]
    theirs: tuple[Sample, ...]

    def ratio(self, figure: str) -> float:
        """Median of ours / theirs, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)

    def difference(self, figure: str) -> float:
        """Median of ours - theirs in seconds, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, figure) - getattr(b, figure) for a, b in pairs)


def timed(command: Sequence[str] | Callable[[], None], env: dict[str, str] | None = None) -> Sample:
    """Runs a command (or a function that runs some) to its end and says what it took.

    Raises:
        RuntimeError: it failed; what it printed is in the message.
    """
    before, start = os.times(), time.perf_counter()
    if callable(command):
        command()
    else:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    wall, after = time.perf_counter() - start, os.times()
    cpu = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    return Sample(wall, cpu)


def paired(
    ours: Sequence[str] | Callable[[], None], theirs: Sequence[str] | Callable[[], None], runs: int, warmup: int = 1
) -> Pair:
    """Both, in turn, `runs` times after `warmup` uncounted times."""
    for _ in range(warmup):
        timed(ours)
        timed(theirs)
    samples = [(timed(ours), timed(theirs)) for _ in range(runs)]
    return Pair(tuple(a for a, _ in samples), tuple(b for _, b in samples))


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        what: what was measured.
        measured: the figures, ratios first.
        budget: what design asks for.
        held: whether it is kept; None where there is no budget.
    """

    what: str
    measured: str
    budget: str
    held: bool | None = None

    def markdown(self) -> str:
        """The line."""
        mark = {True: "yes", False: "**no**", None: ""}[self.held]
        return f"| {self.what} | {self.measured} | {self.budget} | {mark} |"
