"""Runs two commands in turn (A B A B ...). Therefore their ratio does not depend on changes of the machine's speed."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """The wall-clock seconds and CPU seconds of one execution of a command."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Pair:
    """The samples of two commands that were executed in turn.

    Args:
        ours: the samples of the first command.
        theirs: the samples of the second command.
    """

    ours: tuple[Sample, ...]
    theirs: tuple[Sample, ...]

    def ratio(self, figure: str) -> float:
        """Returns the median of the ratios of all pairs of samples.

        A ratio is the `figure` of the first command, divided by the `figure` of the second command.
        """
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)

    def difference(self, figure: str) -> float:
        """Returns the median of the differences of all pairs of samples.

        A difference is the `figure` of the first command minus the `figure` of the second command.
        """
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, figure) - getattr(b, figure) for a, b in pairs)


def timed(command: Sequence[str] | Callable[[], None], env: dict[str, str] | None = None) -> Sample:
    """Runs a command, or a function that runs commands, and returns its wall-clock and CPU seconds.

    Raises:
        RuntimeError: the command failed. The message contains the output of the command.
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
    """Runs both commands in turn and returns their samples.

    Runs the commands `warmup` times without a measurement, and then `runs` times with a measurement.
    """
    for _ in range(warmup):
        timed(ours)
        timed(theirs)
    samples = [(timed(ours), timed(theirs)) for _ in range(runs)]
    return Pair(tuple(a for a, _ in samples), tuple(b for _, b in samples))


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        what: the scenario.
        measured: the measured numbers as text. Ratios come first.
        budget: the limit for the numbers as text. The text is empty if there is no limit.
        met: whether the numbers are within the limit. None if there is no limit.
    """

    what: str
    measured: str
    budget: str
    met: bool | None = None

    def markdown(self) -> str:
        """Returns the row as Markdown."""
        mark = {True: "yes", False: "**no**", None: ""}[self.met]
        return f"| {self.what} | {self.measured} | {self.budget} | {mark} |"
