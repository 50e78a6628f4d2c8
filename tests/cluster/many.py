"""Several runs on the cluster at the same time, each checked by its own tests.

Most of a run's time on a cluster is waiting, so parallel runs take little longer than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepset.run_status import Failure, RunStatus
from tests.cluster.runs import RecordingListener, Runs, runs_in
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.pod import Mount

if TYPE_CHECKING:
    from stepset.backends.kubernetes.backend import KubernetesHandle

TORCH: dict[str, Any] = {"kind": "torch", "launcher": "none"}
"""Ranks that get the variables of torch, and need no framework."""
PAIR: dict[str, Any] = {"framework": TORCH, "num_nodes": 2, "procs_per_node": 1}
"""Two pods with one rank each."""
BRIEF: dict[str, Any] = {"terminationGracePeriodSeconds": 5}
"""A pod_template for ranks that may be stopped while they start: a pod's first process ignores SIGTERM until it
installs a handler, and Python takes a moment for that."""
RANK = (
    "import json, os, pathlib, signal, sys, time\n"
    "rank, attempt = int(os.environ.get('RANK', 0)), int(os.environ['STEPSET_ATTEMPT'])\n"
)
"""The start of a rank's program."""
MEET = (
    RANK
    + """
import socket
address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
if rank == 0:
    with socket.create_server(('', address[1])) as server:
        server.accept()
while rank == 1:
    try:
        socket.create_connection(address, 5).close()
        break
    except OSError:
        time.sleep(0.1)
"""
)
"""Two ranks that connect before they continue, as those of a framework do. Without this, one may end before the other
starts; its host name then no longer resolves, and the other would wait for it."""
RESULT = "open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({}))\n"
"""Writes a result; a format string."""
SLEEP = "time.sleep(600)\n"


def shared(cluster: Cluster, directory: Path) -> dict[str, Any]:
    """A pod_template that mounts a directory of this machine at the same path; like a claim, it outlives the pods."""
    if cluster.choice is None:
        pytest.skip("needs the test cluster, whose nodes share this machine's /tmp")
    spec: dict[str, Any] = cluster.pod_template(mounts=[Mount(str(directory), read_only=False)])["spec"]
    return spec


class Many:
    """Runs that are started together in one namespace."""

    def __init__(self, runs: Runs, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        self.runs = runs
        self._started: dict[str, tuple[KubernetesHandle, RecordingListener]] = {}
        for name, fields in jobs.items():
            rest = dict(fields)
            if code := rest.pop("code", None):
                rest["command"] = [runs.cluster.python, "-c", code]
            self._started[name] = runs.start(rest.pop("text", None), run=name, **rest)

    @property
    def started(self) -> tuple[str, ...]:
        """The names of the runs."""
        return tuple(self._started)

    def handle(self, name: str) -> KubernetesHandle:
        """A run's handle."""
        return self._started[name][0]

    def listener(self, name: str) -> RecordingListener:
        """A run's listener."""
        return self._started[name][1]

    def end(self, name: str) -> RunStatus:
        """Waits for a run; returns its final status."""
        return self._started[name][0].wait()

    def failure(self, name: str) -> Failure:
        """Waits for a run that fails; returns its failure."""
        failure = self.end(name).failure
        assert failure is not None, self.end(name)
        return failure


@contextmanager
def many(cluster: Cluster, directory: Path, jobs: Mapping[str, Mapping[str, Any]], **where: str) -> Iterator[Many]:
    """Starts runs in a new namespace.

    Args:
        cluster: the cluster.
        directory: the directory for the account's kubeconfig.
        jobs: name -> fields of the job; `text` is the ranks' script, `code` one that needs the tests' packages, and
            `options` are the backend's.
        where: target, gang.
    """
    with cluster.namespace() as namespace, runs_in(cluster, namespace, directory, **where) as runs:
        yield Many(runs, jobs)
