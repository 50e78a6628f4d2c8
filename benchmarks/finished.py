"""Measures the time from the exit of the ranks until a deferred task has finished.

The benchmark compares this time for stepset's operator and for KubernetesJobOperator. Each of the two operators runs
its DAG with `dag.test()` in a process of its own. Both processes run at the same time. Airflow calls execute, the
trigger and execute_complete. The time in which a scheduler returns the task to a worker is not included, because this
time does not depend on the operator.

The ranks record the time at which they exit. `kubectl get --watch` records two times: when the server reports that the
containers have terminated, and when the server reports that the Job is complete. The delay of these reports depends
only on the cluster and not on the operator.
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

WHAT = "end of 2 pods to end of the deferred task, against KubernetesJobOperator at its default poll of 10 s"
BUDGET = "<= 1/10 x"
SCRIPT = Path(__file__).parent / "scripts" / "finish.py"
ROOT = Path(__file__).parents[1]
WAYS = ("ours", "theirs")
WITHIN = 60.0
"""The maximum number of seconds of a run and its task."""
NODES = 2
_COMPLETE = '{.metadata.name} {.metadata.name} {.status.completionTime}{"\\n"}'
_ENDED = (
    r"{.metadata.name} {.metadata.labels.batch\.kubernetes\.io/job-name} {.status.containerStatuses[*].state.terminated"
    r'.reason}{"\n"}'
)


@dataclass(frozen=True)
class End:
    """The times of events after the exit of a run's last rank, in seconds since this exit.

    Args:
        pods: the time at which the server has reported that the containers of all pods have terminated.
        complete: the time at which the server has reported that the Job is complete.
        notified: the time at which the task has received the event of its trigger.
        finished: the time at which the task has finished.
    """

    pods: float
    complete: float
    notified: float
    finished: float

    @property
    def late(self) -> float:
        """Returns the number of seconds from the time `pods` to the time `finished`."""
        return self.finished - self.pods


def rows(runs: int = 20) -> Iterator[Row]:
    """Returns one row."""
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
            _ends_reported(cluster, namespace, "jobs", _COMPLETE, 1) as complete,
            _ends_reported(cluster, namespace, "pods", _ENDED, NODES) as pods,
        ):
            _run_both(settings)
        ours, theirs = (_ends(directory, way, pods[way], complete[way]) for way in WAYS)
    late, ratio = (_median(ours, figure) / _median(theirs, figure) for figure in ("late", "finished"))
    text = (
        f"{late:.2f} x since the server reported the pods' ends, {ratio:.2f} x since the ranks ended:"
        f" {_words(ours)} against {_words(theirs)}"
    )
    return [Row(WHAT, text, BUDGET, late <= 1 / 10)]


@contextmanager
def _ends_reported(
    cluster: Cluster, namespace: str, kind: str, shown: str, each: int
) -> Iterator[dict[str, list[float]]]:
    """A context manager that records the times at which the server reports that objects have finished.

    The context manager yields a mapping. For each of the two operators, the mapping contains a list with one time for
    each run.

    Args:
        cluster: the cluster.
        namespace: the namespace of the runs.
        kind: the kind of the watched objects.
        shown: a JSONPath for kubectl that prints the name of an object and the name of its Job. When the object has
            finished, the JSONPath prints one more word.
        each: the number of objects of a run.
    """
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    watch = subprocess.Popen(
        [cluster.program, "get", kind, "-n", namespace, "--watch", "-o", f"jsonpath={shown}"],
        env={**os.environ, "KUBECONFIG": cluster.kubeconfig},
        stdout=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        ended: dict[str, set[str]] = {}
        assert watch.stdout is not None
        for line in watch.stdout:
            name, job, word, *_ = [*line.split(), "", ""]
            ended_objects = ended.setdefault(job, set())
            if word and name not in ended_objects:
                ended_objects.add(name)
                if len(ended_objects) == each:
                    found["ours" if job.endswith("-node-0") else "theirs"].append(time.time())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        watch.kill()
        watch.wait()
        thread.join()


def _run_both(settings: dict[str, Any]) -> None:
    """Runs both operators at the same time, and waits until both have finished."""
    with tempfile.TemporaryFile("w+") as output:
        processes = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), way, json.dumps(settings)], cwd=ROOT, stdout=output, stderr=output
            )
            for way in WAYS
        ]
        try:
            codes = [each.wait(120 + WITHIN * settings["runs"]) for each in processes]
        finally:
            for each in processes:
                each.kill()
                each.wait()
        if any(codes):
            output.seek(0)
            raise RuntimeError(f"{SCRIPT.name} ended with {codes}\n{output.read()[-3000:]}")


def _ends(directory: Path, way: str, pods: list[float], complete: list[float]) -> list[End]:
    ends = []
    for number, seen in enumerate(zip(pods[1:], complete[1:], strict=True)):  # the first run is not measured
        last = max(float((directory / f"{way}-{number}-{node}").read_text()) for node in range(NODES))
        task = json.loads((directory / f"{way}-{number}").read_text())
        ends.append(End(*(at - last for at in (*seen, task["notified"], task["finished"]))))
    return ends


def _median(ends: list[End], figure: str) -> float:
    return statistics.median(getattr(each, figure) for each in ends)


def _words(ends: list[End]) -> str:
    pods, complete, notified, finished = (
        _median(ends, figure) for figure in ("pods", "complete", "notified", "finished")
    )
    slowest = max(each.finished for each in ends)
    return (
        f"median {finished:.2f} s (containers ended after {pods:.2f} s, Job complete after {complete:.2f} s,"
        f" trigger's event after {notified:.2f} s; the slowest of {len(ends)} {slowest:.2f} s)"
    )
