"""A claim that many nodes can mount."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.kfp_backend.layout import NAMESPACE

from tests.cluster.testbed.handle import Cluster


@contextmanager
def volume(cluster: Cluster, name: str, directory: Path) -> Iterator[None]:
    """Creates a PersistentVolume of a directory of this machine, without a class, as large as a claim for 1 GiB.

    A claim without a class binds to this volume, because the test cluster has no default class.
    """
    spec = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(directory)},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        cluster.kubectl("delete", "pv", name, "--timeout=120s", timeout=150)


@contextmanager
def claim(cluster: Cluster, name: str, directory: Path) -> Iterator[None]:
    """Creates a claim in KFP's namespace, and its volume, a directory of this machine."""
    with volume(cluster, name, directory):
        spec = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        metadata = {"name": name}
        cluster.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}, NAMESPACE
        )
        try:
            yield
        finally:
            remove_claim(cluster, name)


def remove_claim(cluster: Cluster, name: str) -> None:
    """Deletes a claim, and before it all workflows with their pods: ended pods, too, keep a claim that they mount."""
    cluster.kubectl("delete", "workflows.argoproj.io", "--all", "-n", NAMESPACE, "--timeout=120s")
    cluster.kubectl("delete", "pvc", name, "-n", NAMESPACE, "--timeout=300s", timeout=360)
