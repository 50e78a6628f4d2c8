"""Several runs on the cluster at once, each looked at by a test of its own.

Most of a run's time on a cluster is waiting, and runs do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepset.watch.state import Failure, RunStatus
from tests.cluster.runs import Listening, Runs, runs_in
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.pod import Mount

if TYPE_CHECKING:
    from stepset.backends.kubernetes.backend import KubernetesHandle

TORCH: dict[str, Any] = {"kind": "torch", "launcher": "none"}
"""Ranks that are told of each other and need no framework."""
PAIR: dict[str, Any] = {"framework": TORCH, "num_nodes": 2, "procs_per_node": 1}
"""Two pods with a rank each."""
BRIEF: dict[str, Any] = {"terminationGracePeriodSeconds": 5}
"""A pod_template for ranks that may be stopped while they start: a pod's first process hears no SIGTERM until it says
so, and Python takes a moment for that."""
RANK = (
    "import json, os, pathlib, signal, sys, time\n"
    "rank, attempt = int(os.environ.get('RANK', 0)), int(os.environ['STEPSET_ATTEMPT'])\n"
)
"""Begins a rank's program."""
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
"""Two ranks that meet before they go on, as those of a framework do: one that ends before the other begins has no name
any more, and is waited for."""
RESULT = "open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({}))\n"
"""Leaves a result; to be formatted."""
SLEEP = "time.sleep(600)\n"


def shared(cluster: Cluster, directory: Path) -> dict[str, Any]:
    """A pod_template with a directory that outlives the pods, under its own path, as a claim would."""
    if cluster.choice is None:
        pytest.skip("needs the test cluster, whose nodes share this machine's /tmp")
    spec: dict[str, Any] = cluster.pod_template(mounts=[Mount(str(directory), read_only=False)])["spec"]
    return spec


class Many:
    """Runs that were started together, in one namespace."""

    def __init__(self, runs: Runs, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        self.runs = runs
        self._started: dict[str, tuple[KubernetesHandle, Listening]] = {}
        for name, fields in jobs.items():
            rest = dict(fields)
            if code := rest.pop("code", None):
                rest["command"] = [runs.cluster.python, "-c", code]
            self._started[name] = runs.start(rest.pop("text", None), run=name, **rest)

    def handle(self, name: str) -> KubernetesHandle:
        """Of one of them."""
        return self._started[name][0]

    def heard(self, name: str) -> Listening:
        """What its listener was told."""
        return self._started[name][1]

    def end(self, name: str) -> RunStatus:
        """Its final status; waits for it."""
        return self._started[name][0].wait()

    def failure(self, name: str) -> Failure:
        """Why it failed; waits for that."""
        failure = self.end(name).failure
        assert failure is not None, self.end(name)
        return failure


@contextmanager
def many(cluster: Cluster, directory: Path, jobs: Mapping[str, Mapping[str, Any]], **where: str) -> Iterator[Many]:
    """Starts them in a namespace of their own.

    Args:
        cluster: where.
        directory: for the account's kubeconfig.
        jobs: name -> fields of the job; `text` is the ranks' script, `code` one that needs the tests' own packages, and
            `options` those of the backend.
        where: target, gang.
    """
    with cluster.namespace() as namespace, runs_in(cluster, namespace, directory, **where) as runs:
        yield Many(runs, jobs)
