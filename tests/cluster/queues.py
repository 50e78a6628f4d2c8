"""A queue of Kueue's with room for so many cpus."""

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
    """A LocalQueue in a namespace, with a quota of its own.

    Args:
        cluster: the test cluster, with Kueue; else the test is skipped.
        namespace: where; the quota is called the same.
        cpus: that runs in it may have at once.
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


def set_cpus(cluster: Cluster, namespace: str, cpus: int) -> None:
    """Changes the quota."""
    patch = json.dumps({"spec": {"resourceGroups": [_group(namespace, cpus)]}})
    cluster.kubectl("patch", "clusterqueue", namespace, "--type=merge", "-p", patch)


def set_active(cluster: Cluster, namespace: str, active: bool) -> None:
    """Takes what is in the queue out of it, running or not, or puts it back: what a preemption does, at will."""
    patch = json.dumps({"spec": {"active": active}})
    for each in cluster.get("workloads.kueue.x-k8s.io", namespace)["items"]:
        name = each["metadata"]["name"]
        cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "-n", namespace, "--type=merge", "-p", patch)


def _group(flavor: str, cpus: int) -> dict[str, Any]:
    quota = [{"name": "cpu", "nominalQuota": cpus}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": quota}]}
