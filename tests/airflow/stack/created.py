"""Every JobSet that has ever been made in a namespace while a test ran, as the API server told a watch.

A list at the end would not show those that were deleted in between. The watch is known to be open, and to have told of
everything, because it has told of a JobSet that this made itself at the beginning and at the end.
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
        cluster: where.
        namespace: which.
        told: the file that kubectl writes to, a line for each change.
    """

    def __init__(self, cluster: Cluster, namespace: str, told: Path) -> None:
        self._cluster, self._namespace, self._told = cluster, namespace, told

    def names(self) -> list[str]:
        """The JobSets made until now, the oldest first."""
        self.mark()
        found = dict.fromkeys(line.split()[0] for line in self._lines())
        names = dict(line.split() for line in self._lines())
        return [names[uid] for uid in found if not names[uid].startswith(_MARK)]

    def mark(self) -> None:
        """Waits until everything that has happened is told."""
        name = f"{_MARK}{uuid.uuid4().hex[:8]}"
        pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
        job = {"name": "none", "template": {"spec": {"template": {"spec": pod}}}}
        about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
        self._apply({**about, "spec": {"suspend": True, "replicatedJobs": [job]}})
        assert until(lambda: any(line.endswith(name) for line in self._lines())), "the watch does not tell"
        self._cluster.objects.delete(f"jobset/{name}", self._namespace)

    def _apply(self, manifest: dict[str, Any]) -> None:
        """Creates an object, though a server that has just been started may not reach its webhooks yet."""
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
        return self._told.read_text().splitlines()


@contextmanager
def created(cluster: Cluster, namespace: str, told: Path) -> Iterator[Created]:
    """A watch that is open.

    Args:
        cluster: where.
        namespace: which; JobSets that are there already count as well.
        told: a file for it.
    """
    shown = r'jsonpath={.metadata.uid} {.metadata.name}{"\n"}'
    words = [cluster.program, "--kubeconfig", cluster.kubeconfig, "get", "jobsets", "-n", namespace, "-w", "-o", shown]
    with told.open("wb") as out, subprocess.Popen(words, stdout=out) as kubectl:
        try:
            watch = Created(cluster, namespace, told)
            watch.mark()
            yield watch
            assert kubectl.poll() is None, "the watch has ended, and with it what it says is not all"
        finally:
            kubectl.terminate()
