"""Measures how costs grow with the number of runs and pods.

In the first benchmark, one process follows many runs of ten pods each. The second benchmark executes `stepset status`
for one run with many pods. The pods are on kwok's fake nodes. The first benchmark measures only the process that
follows the runs. The second benchmark measures only the command. Other processes create and delete the runs and finish
their pods.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.testbed import scale
from tests.cluster.testbed.handle import Cluster

from benchmarks.fake_runs import NODE_PODS, FakeRuns, fake_runs
from benchmarks.on_cluster import with_cluster
from benchmarks.paired import Row

RUNS = (100, 300, 1000)
PODS_OF_A_RUN = 10
PODS = (100, 1000, 10_000)

SETTLED = 5.0
"""The number of seconds to wait before the first event, after the process has received a status of each run."""
GROWTH = 1.3
"""The limit for the growth of the cost of one event.

The growth is the ratio of two costs: the cost with the largest number of runs, and the cost with the smallest number of
runs."""
_TIMEOUT = 600.0
_WAIT = Path(__file__).parent / "scripts" / "wait.py"
_USED = Path(__file__).parent / "scripts" / "used.py"
_STEPSET = str(Path(sys.executable).parent / "stepset")

MEMORY = f"{RUNS[-1]:,} runs of {PODS_OF_A_RUN} pods followed in one process: peak memory above one run's"
FIRST = f"{RUNS[-1]:,} runs of {PODS_OF_A_RUN} pods: from the start of the process until a status of each is known"
EVENTS = f"CPU time of a watch event, by runs of {PODS_OF_A_RUN} pods"
STATUS = "`stepset status` of one run, by pods"
BUDGETS = {
    MEMORY: "<= 300 MB",
    FIRST: "<= 10 s",
    EVENTS: "linear in events",
    STATUS: f"<= 3 s and 300 MB with {PODS[-1]:,}",
}


@dataclass(frozen=True)
class Followed:
    """The resources that a process has used to follow runs.

    Args:
        runs: the number of runs.
        mb: the peak memory in 10^6 bytes.
        first: the seconds of the first period. This period begins with the start of the process. It ends when the
            process has received a status of each run.
        first_cpu: the CPU seconds of the process in the first period.
        events: the number of watch events in the second period. This period ends when the last run has finished.
        cpu: the CPU seconds of the process in the second period.
    """

    runs: int
    mb: float
    first: float
    first_cpu: float
    events: int
    cpu: float

    @property
    def per_event(self) -> float:
        """Returns the CPU milliseconds per event."""
        return 1000 * self.cpu / self.events


@dataclass(frozen=True)
class StatusCost:
    """The resources that one `stepset status` has used.

    Args:
        pods: the number of pods of the run.
        wall, cpu: the medians of the wall-clock seconds and of the CPU seconds.
        mb: the peak memory in 10^6 bytes.
    """

    pods: int
    wall: float
    cpu: float
    mb: float


def rows() -> Iterator[Row]:
    """Creates the fake nodes, yields four rows, and deletes the fake nodes."""
    return with_cluster(_measured, *BUDGETS.items())


def _measured(cluster: Cluster) -> Iterator[Row]:
    assert cluster.choice is not None
    nodes = -(-max(RUNS[-1] * PODS_OF_A_RUN, PODS[-1]) // NODE_PODS)
    with scale.nodes(cluster.choice, nodes):
        costs = [_status_cost(cluster, pods) for pods in PODS]
        yield _status_row(costs)
        idle = _followed(cluster, 1)
        yield from _followed_rows(idle, [_followed(cluster, runs) for runs in RUNS])


def _followed_rows(idle: Followed, found: Sequence[Followed]) -> Iterator[Row]:
    most = found[-1]
    more = {each.runs: each.mb - idle.mb for each in found}
    grown = ", ".join(f"{runs:,}: {mb:.0f} MB" for runs, mb in more.items())
    yield Row(MEMORY, f"{grown} above {idle.mb:.0f} MB", BUDGETS[MEMORY], more[most.runs] <= 300)
    grown = ", ".join(f"{each.runs:,}: {each.first:.1f} s ({each.first_cpu:.1f} s CPU)" for each in (idle, *found))
    yield Row(FIRST, grown, BUDGETS[FIRST], most.first <= 10)
    grown = ", ".join(
        f"{each.runs:,}: {each.per_event:.2f} ms ({each.cpu:.1f} s for {each.events:,} events)" for each in found
    )
    ratio = most.per_event / found[0].per_event
    yield Row(EVENTS, f"{ratio:.2f} x ({grown})", BUDGETS[EVENTS], ratio <= GROWTH)


def _status_row(costs: Sequence[StatusCost]) -> Row:
    grown = ", ".join(f"{each.pods:,}: {each.wall:.2f} s, {each.cpu:.2f} s CPU, {each.mb:.0f} MB" for each in costs)
    most = costs[-1]
    return Row(STATUS, grown, BUDGETS[STATUS], most.wall <= 3 and most.mb <= 300)


def _followed(cluster: Cluster, count: int) -> Followed:
    """Starts a process that follows active runs until all of them have finished.

    Returns the resources that this process has used.
    """
    names = [f"run-{number}" for number in range(count)]
    with (
        fake_runs(cluster, names, PODS_OF_A_RUN) as runs,
        tempfile.TemporaryDirectory() as directory,
        runs.counted() as counted,
    ):
        out = Path(directory, "samples")
        with _following(cluster, runs, count, out) as (process, began):
            _until(process, out, lambda each: "known" in each, count)
            known = _read(out)
            time.sleep(SETTLED)
            before = _read(out)[-1]
            runs.finish()
            if code := process.wait(_TIMEOUT):
                raise RuntimeError(f"following {count} runs ended with {code}")
        samples = [each for each in _read(out) if "cpu" in each]
        first, last = max(each["at"] for each in known if "known" in each) - began, samples[-1]
        spent = last["cpu"] - before["cpu"]
        return Followed(count, last["mib"] * 1.048576, first, samples[0]["cpu"], counted.events, spent)


@contextmanager
def _following(
    cluster: Cluster, runs: FakeRuns, count: int, out: Path
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A context manager that starts the process that follows the runs, and kills this process afterwards.

    The context manager yields the process and the start time of the process.
    """
    Path(f"{out}.runs").write_text(json.dumps(runs.workloads))
    words = [cluster.kubeconfig, runs.namespace, str(count), str(out)]
    began = time.time()
    process = subprocess.Popen([sys.executable, str(_WAIT), "ours", *words], stdout=subprocess.DEVNULL)
    try:
        yield process, began
    finally:
        process.kill()
        process.wait()


def _until(process: subprocess.Popen[bytes], out: Path, wanted: Any, count: int) -> None:
    until = time.monotonic() + _TIMEOUT
    while not out.exists() or sum(map(wanted, _read(out))) < count:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"the status of some runs is not known after {_TIMEOUT:.0f} s")
        time.sleep(0.2)


def _read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _status_cost(cluster: Cluster, pods: int) -> StatusCost:
    with fake_runs(cluster, ["run-0"], pods) as runs:
        words = [_STEPSET, "status", "run-0", "--backend", "kubernetes", "--namespace", runs.namespace]
        env = {**os.environ, "KUBECONFIG": cluster.kubeconfig}
        samples = [_run(words, env) for _ in range(4)][1:]
    wall, cpu, mb = (statistics.median(each) for each in zip(*samples, strict=True))
    return StatusCost(pods, wall, cpu, mb)


def _run(words: list[str], env: dict[str, str]) -> tuple[float, float, float]:
    """Runs a command. Returns its wall-clock seconds, its CPU seconds, and its peak memory in 10^6 bytes."""
    done = subprocess.run(
        [sys.executable, "-S", str(_USED), *words], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
    used = json.loads(done.stdout)
    return used["wall"], used["cpu"], used["kib"] * 1024 / 1e6
