"""A Kueue queue with a quota of CPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.testbed.handle import Cluster

QUEUE = "team-a"
_API = "kueue.x-k8s.io/v1beta2"


@contextmanager
def queue(cluster: Cluster, namespace: str, cpus: int) -> Iterator[str]:
    """Creates a LocalQueue with its own ClusterQueue.

    Args:
        cluster: the test cluster with Kueue; the test is skipped on any other.
        namespace: the namespace of the LocalQueue, and the name of the ClusterQueue.
        cpus: the quota.
    """
    if cluster.choice is None or not cluster.choice.kueue:
        pytest.skip("needs the test cluster with Kueue (STEPSET_KUEUE=1)")
    cluster.apply({"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": namespace}})
    spec = {"namespaceSelector": {}, "resourceGroups": [_group(namespace, cpus)]}
    cluster.apply({"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": spec})
    local = {"metadata": {"name": QUEUE}, "spec": {"clusterQueue": namespace}}
    cluster.apply({"apiVersion": _API, "kind": "LocalQueue", **local}, namespace)
    try:
        yield QUEUE
    finally:
        cluster.kubectl("delete", "clusterqueue,resourceflavor", namespace, "--wait=false")


def apply_objects(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    """Applies objects of Kueue, which contain their kind, metadata and spec."""
    for each in objects:
        cluster.apply({"apiVersion": _API, **each}, namespace)


def set_cpus(cluster: Cluster, namespace: str, cpus: int) -> None:
    """Changes the quota of the queue."""
    patch = json.dumps({"spec": {"resourceGroups": [_group(namespace, cpus)]}})
    cluster.kubectl("patch", "clusterqueue", namespace, "--type=merge", "-p", patch)


def set_active(cluster: Cluster, namespace: str, active: bool) -> None:
    """Deactivates or reactivates all workloads of the queue, running or not, as a preemption does."""
    patch = json.dumps({"spec": {"active": active}})
    for each in cluster.get("workloads.kueue.x-k8s.io", namespace)["items"]:
        name = each["metadata"]["name"]
        cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "-n", namespace, "--type=merge", "-p", patch)


def _group(flavor: str, cpus: int) -> dict[str, Any]:
    quota = [{"name": "cpu", "nominalQuota": cpus}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": quota}]}
