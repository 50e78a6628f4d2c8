"""From the last line of a run's ranks to the end of its deferred task, against KubernetesJobOperator as it is.

Both sides run their DAG by `dag.test()`, at the same time, each in a process of its own: Airflow's own way through
execute, the trigger and execute_complete. What a scheduler adds before it hands the task back to a worker is the same
for both, and not in it. The ranks themselves write down when they end, and watches when the server says so of their
pods and of their Job: what lies between is the cluster's, and the same for both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.pod import Mount

from benchmarks.on_cluster import shared_directory, with_cluster
from benchmarks.paired import Row

WHAT = "pods finished -> task finished, deferred: 2 pods, against KubernetesJobOperator at its default poll of 10 s"
BUDGET = "<= 1/10 x"
SCRIPT = Path(__file__).parent / "scripts" / "finish.py"
ROOT = Path(__file__).parents[1]
WAYS = ("ours", "theirs")
WITHIN = 60.0
"""Seconds that a run and its task may take at most."""
NODES = 2
_COMPLETE = '{.metadata.name} {.metadata.name} {.status.completionTime}{"\\n"}'
_ENDED = (
    r"{.metadata.name} {.metadata.labels.batch\.kubernetes\.io/job-name} {.status.containerStatuses[*].state.terminated"
    r'.reason}{"\n"}'
)


@dataclass(frozen=True)
class End:
    """Seconds after a run's last rank has ended.

    Args:
        pods: until the server says that its pods' containers have ended.
        complete: until it says that its Job is complete.
        told: until the trigger tells it.
        finished: until the task has finished.
    """

    pods: float
    complete: float
    told: float
    finished: float

    @property
    def late(self) -> float:
        """Seconds that are not the cluster's."""
        return self.finished - self.pods


def rows(runs: int = 20) -> Iterator[Row]:
    """One row."""
    return with_cluster(lambda cluster: _measured(cluster, runs), (WHAT, BUDGET))


def _measured(cluster: Cluster, runs: int) -> list[Row]:
    with cluster.namespace("bench") as namespace, shared_directory() as directory:
        settings = {
            "kubeconfig": cluster.kubeconfig,
            "namespace": namespace,
            "image": cluster.image,
            "template": {
                name: cluster.pod_template(name, [Mount(str(directory), read_only=False)]) for name in ("node", "base")
            },
            "directory": str(directory),
            "runs": runs,
        }
        with (
            _told_of(cluster, namespace, "jobs", _COMPLETE, 1) as complete,
            _told_of(cluster, namespace, "pods", _ENDED, NODES) as pods,
        ):
            _run_both(settings)
        ours, theirs = (_ends(directory, way, pods[way], complete[way]) for way in WAYS)
    late, ratio = (_median(ours, figure) / _median(theirs, figure) for figure in ("late", "finished"))
    text = f"{late:.2f} x, {ratio:.2f} x from the ranks' own ends on: {_words(ours)} against {_words(theirs)}"
    return [Row(WHAT, text, BUDGET, late <= 1 / 10)]


@contextmanager
def _told_of(cluster: Cluster, namespace: str, kind: str, shown: str, each: int) -> Iterator[dict[str, list[float]]]:
    """When the server says that something has ended, of each side, run by run.

    Args:
        cluster: where.
        namespace: of the runs.
        kind: of the objects that are watched.
        shown: what is printed of one, as a path of kubectl's: its name, its Job's name, and a word once it has ended.
        each: objects of a run.
    """
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    watching = subprocess.Popen(
        [cluster.program, "get", kind, "-n", namespace, "--watch", "-o", f"jsonpath={shown}"],
        env={**os.environ, "KUBECONFIG": cluster.kubeconfig},
        stdout=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        ended: dict[str, set[str]] = {}
        assert watching.stdout is not None
        for line in watching.stdout:
            name, job, word, *_ = [*line.split(), "", ""]
            those = ended.setdefault(job, set())
            if word and name not in those:
                those.add(name)
                if len(those) == each:
                    found["ours" if job.endswith("-node-0") else "theirs"].append(time.time())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        watching.kill()
        watching.wait()
        thread.join()


def _run_both(settings: dict[str, Any]) -> None:
    """Runs both sides, at once, to their ends."""
    with tempfile.TemporaryFile("w+") as said:
        begun = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), way, json.dumps(settings)], cwd=ROOT, stdout=said, stderr=said
            )
            for way in WAYS
        ]
        try:
            codes = [each.wait(120 + WITHIN * settings["runs"]) for each in begun]
        finally:
            for each in begun:
                each.kill()
                each.wait()
        if any(codes):
            said.seek(0)
            raise RuntimeError(f"{SCRIPT.name} ended with {codes}\n{said.read()[-3000:]}")


def _ends(directory: Path, way: str, pods: list[float], complete: list[float]) -> list[End]:
    ends = []
    for number, seen in enumerate(zip(pods[1:], complete[1:], strict=True)):  # the first has warmed up
        last = max(float((directory / f"{way}-{number}-{node}").read_text()) for node in range(NODES))
        task = json.loads((directory / f"{way}-{number}").read_text())
        ends.append(End(*(at - last for at in (*seen, task["told"], task["finished"]))))
    return ends


def _median(ends: list[End], figure: str) -> float:
    return statistics.median(getattr(each, figure) for each in ends)


def _words(ends: list[End]) -> str:
    pods, complete, told, finished = (_median(ends, figure) for figure in ("pods", "complete", "told", "finished"))
    slowest = max(each.finished for each in ends)
    return (
        f"median {finished:.2f} s (containers ended after {pods:.2f} s, Job complete after {complete:.2f} s,"
        f" told after {told:.2f} s; the slowest of {len(ends)} {slowest:.2f} s)"
    )
