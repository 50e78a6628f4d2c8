"""Records every JobSet that is created in a namespace during a test, with a watch.

A list at the end would not contain those that were deleted before. The watch is known to be open and up to date once it
has reported a marker JobSet, which this module creates at the beginning and at the end.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.waiting import until

_MARK = "mark-"


class Created:
    """A watch of a namespace's JobSets.

    Args:
        cluster: the cluster.
        namespace: the namespace.
        output: the file to which kubectl writes a line for each change.
    """

    def __init__(self, cluster: Cluster, namespace: str, output: Path) -> None:
        self._cluster, self._namespace, self._output = cluster, namespace, output

    def names(self) -> list[str]:
        """The names of the JobSets that were created so far, oldest first."""
        self.mark()
        found = dict.fromkeys(line.split()[0] for line in self._lines())
        names = dict(line.split() for line in self._lines())
        return [names[uid] for uid in found if not names[uid].startswith(_MARK)]

    def mark(self) -> None:
        """Waits until the watch has reported all changes so far."""
        name = f"{_MARK}{uuid.uuid4().hex[:8]}"
        pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
        job = {"name": "none", "template": {"spec": {"template": {"spec": pod}}}}
        about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
        self._apply({**about, "spec": {"suspend": True, "replicatedJobs": [job]}})
        assert until(lambda: any(line.endswith(name) for line in self._lines())), "the watch does not report the marker"
        self._cluster.objects.delete(f"jobset/{name}", self._namespace)

    def _apply(self, manifest: dict[str, Any]) -> None:
        """Creates an object; retries, because a server that has just started may not reach its webhooks yet."""
        wrong: list[TestbedError] = []

        def applied() -> bool:
            try:
                self._cluster.apply(manifest, self._namespace)
            except TestbedError as error:
                wrong.append(error)
                return False
            return True

        assert until(applied), wrong[-1]

    def _lines(self) -> list[str]:
        return self._output.read_text().splitlines()


@contextmanager
def created(cluster: Cluster, namespace: str, output: Path) -> Iterator[Created]:
    """Runs a watch during the block.

    Args:
        cluster: the cluster.
        namespace: the namespace; JobSets that already exist count, too.
        output: the file for kubectl's output.
    """
    shown = r'jsonpath={.metadata.uid} {.metadata.name}{"\n"}'
    words = [cluster.program, "--kubeconfig", cluster.kubeconfig, "get", "jobsets", "-n", namespace, "-w", "-o", shown]
    with output.open("wb") as out, subprocess.Popen(words, stdout=out) as kubectl:
        try:
            watch = Created(cluster, namespace, output)
            watch.mark()
            yield watch
            assert kubectl.poll() is None, "the watch has ended early, so its record is incomplete"
        finally:
            kubectl.terminate()
