"""Measures the time from the submission of a run until its ranks execute their first line of code.

The benchmark compares stepset with `kubectl apply` of the same manifests. The ranks record the time at which they
begin. Therefore the measurement does not depend on reports of stepset or kubectl.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.manifests import bundle
from tests.cluster.testbed.pod import Mount

from benchmarks.on_cluster import shared_directory, with_cluster
from benchmarks.paired import Row
from stepset.api import render
from stepset.backends.base import ClusterOptions, RunRequest
from stepset.backends.kubernetes import kubernetes_backend
from stepset.run_status import Phase, RunStatus
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.targets.pods.strategic_merge import merge

WHAT = "submit to running: 2 pods by the backend, against `kubectl apply` of the same manifests and `kubectl wait`"
BUDGET = "<= 1.1 x"
_MARK = """
import os, pathlib, time
name = os.environ["STEPSET_RUN"] + "-" + os.environ["STEPSET_NODE_RANK"]
pathlib.Path("{directory}", name).write_text(str(time.time()))
time.sleep(1)
"""
_READY = "--for=jsonpath={.status.replicatedJobsStatus[0].ready}=1"


@dataclass(frozen=True)
class Start:
    """Two durations in seconds from the start of the command.

    The first one ends when the last rank has begun. The second one ends when the caller was notified.
    """

    began: float
    notified: float


def rows(pairs: int = 11) -> Iterator[Row]:
    """Returns one row."""
    return with_cluster(lambda cluster: _measured(cluster, pairs), (WHAT, BUDGET))


def _measured(cluster: Cluster, pairs: int) -> list[Row]:
    with cluster.namespace("bench") as namespace, shared_directory() as directory:
        starter = _Starter(cluster, namespace, directory)
        starter.ours("warm-ours")
        starter.theirs("warm-theirs")
        samples = [(starter.ours(f"ours-{number}"), starter.theirs(f"theirs-{number}")) for number in range(pairs)]
    began = statistics.median(ours.began / theirs.began for ours, theirs in samples)
    notified = statistics.median(ours.notified / theirs.notified for ours, theirs in samples)
    medians = [
        [statistics.median(getattr(pair[side], figure) for pair in samples) for side in (0, 1)]
        for figure in ("began", "notified")
    ]
    text = (
        f"{began:.2f} x until the ranks start ({medians[0][0]:.2f} s against {medians[0][1]:.2f} s);"
        f" {notified:.2f} x until the caller knows that they run ({medians[1][0]:.2f} s against {medians[1][1]:.2f} s)"
    )
    return [Row(WHAT, text, BUDGET, began <= 1.1)]


class _Starter:
    """Starts the same job with the backend and with kubectl."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path) -> None:
        self._cluster, self._namespace, self._directory = cluster, namespace, directory
        self._backend = kubernetes_backend(ClusterOptions(kubeconfig=cluster.kubeconfig, namespace=namespace))

    def _job(self, run: str) -> dict[str, Any]:
        template = self._cluster.pod_template(mounts=[Mount(str(self._directory), read_only=False)])
        apart = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"stepset.dev/run": run}},
        }
        return {
            "name": run,
            "framework": "plain",
            "num_nodes": 2,
            "image": self._cluster.image,
            "function": _MARK.format(directory=self._directory),
            "pod_template": merge(template, {"spec": {"topologySpreadConstraints": [apart]}}),
        }

    def ours(self, run: str) -> Start:
        """Starts the run with the backend in this process, and returns the times."""
        job = parse_job(self._job(run))
        listener = _Listener()
        start = time.time()
        handle = self._backend.start(RunRequest(job, read_sources(job, self._directory), name=run), listener)
        listener.running.wait(60)
        status = handle.wait()
        if status.phase is not Phase.SUCCEEDED or listener.at is None:
            raise RuntimeError(f"{run}: {status.failure}")
        self._remove(run)
        return Start(self._began(run) - start, listener.at - start)

    def theirs(self, run: str) -> Start:
        """Applies the rendered manifests with kubectl, waits with kubectl, and returns the times."""
        objects = render(self._job(run), namespace=self._namespace)
        text = bundle(objects)
        where = ("-n", self._namespace)
        start = time.time()
        self._cluster.kubectl("apply", "--server-side", *where, "-f", "-", text=text)
        self._cluster.kubectl("wait", _READY, *where, f"jobset/{run}", "--timeout=60s")
        notified = time.time()
        self._cluster.kubectl("wait", "--for=condition=Completed", *where, f"jobset/{run}", "--timeout=60s")
        self._remove(run)
        return Start(self._began(run) - start, notified - start)

    def _began(self, run: str) -> float:
        return max(float((self._directory / f"{run}-{node}").read_text()) for node in (0, 1))

    def _remove(self, run: str) -> None:
        """Deletes the run. Therefore the cluster is in the same state for each run."""
        self._cluster.kubectl("delete", "jobset,configmap", "-n", self._namespace, "-l", f"stepset.dev/run={run}")


class _Listener:
    """Records when the backend reports that the run is running."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.at: float | None = None

    def on_line(self, line: object) -> None:
        """Does nothing, because the benchmark does not use the output."""

    def on_status(self, status: RunStatus) -> None:
        """Records the time of the first status with the phase Running."""
        if status.phase is Phase.RUNNING and self.at is None:
            self.at = time.time()
            self.running.set()
