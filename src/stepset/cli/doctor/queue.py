"""Checks that a LocalQueue of Kueue exists, and that the LocalQueue and its ClusterQueue are active."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.queues import QueueObjects, inactive
from stepset.cli.doctor.findings import Finding, finding
from stepset.unstructured import part, text

_MISSING_FLAVOR = re.compile(r"missing ResourceFlavor\(s\): ([\w-]+)")
_INSTALL = "install it: https://kueue.sigs.k8s.io/docs/installation/"


def queue_findings(namespace: str, name: str, found: QueueObjects | None, grant: str) -> Iterator[Finding]:
    """Yields the finding about a LocalQueue.

    Args:
        found: the queue; None if Kueue is not installed.
        grant: the command that grants the permission to read the queue.
    """
    if found is None:
        yield finding("queue", "problem", "Kueue is not installed on this cluster", _INSTALL)
    elif found.local.missing:
        what = f"LocalQueue {name} does not exist in namespace {namespace}; {found.local.remedy}"
        spec = {"clusterQueue": "CLUSTER_QUEUE"}
        fix = _create(found.version, "LocalQueue", {"name": name, "namespace": namespace}, spec=spec)
        yield finding("queue", "problem", what, fix)
    elif found.local.found is None:
        yield finding("queue", "note", f"you may not read LocalQueue {name}, so it was not checked", grant)
    else:
        yield _of_existing(namespace, name, found.local.found, found)


def _of_existing(namespace: str, name: str, local: Manifest, found: QueueObjects) -> Finding:
    """Returns the finding about an existing LocalQueue. For an inactive LocalQueue, the finding states a cause."""
    of, cluster = text(part(local, "spec"), "clusterQueue"), found.cluster
    if text(part(local, "spec"), "stopPolicy") not in ("", "None"):
        fix = _resume("localqueue", name, namespace)
        return finding("queue", "problem", f"LocalQueue {name} is stopped", fix)
    if cluster is not None and cluster.missing:
        what = f"ClusterQueue {of} of LocalQueue {name} does not exist"
        return finding("queue", "problem", what, f"create ClusterQueue {of}, with quota for the job's resources")
    if cluster is not None and cluster.found is not None and (why := inactive(cluster.found)):
        fix = _fix(found.version, of, cluster.found, why)
        return finding("queue", "problem", f"ClusterQueue {of} of LocalQueue {name} is not active: {why}", fix)
    if why := inactive(local):
        fix = f"kubectl describe clusterqueue {shlex.quote(of)}"
        return finding("queue", "problem", f"LocalQueue {name} is not active: {why}", fix)
    if cluster is None or cluster.found is None:
        return finding("queue", "ok", f"LocalQueue {name} is active; you may not read its ClusterQueue {of}")
    return finding("queue", "ok", f"LocalQueue {name} and its ClusterQueue {of} are active")


def _fix(version: str, name: str, cluster: Manifest, why: str) -> str:
    """Returns the command to fix an inactive ClusterQueue. If no fix is known, returns a command to show the cause."""
    if text(part(cluster, "spec"), "stopPolicy") not in ("", "None"):
        return _resume("clusterqueue", name)
    if flavor := _MISSING_FLAVOR.search(why):
        return _create(version, "ResourceFlavor", {"name": flavor[1]})
    return f"kubectl describe clusterqueue {shlex.quote(name)}"


def _resume(kind: str, name: str, namespace: str = "") -> str:
    patch = json.dumps({"spec": {"stopPolicy": "None"}})
    place = ["--namespace", namespace] if namespace else []
    return shlex.join(["kubectl", "patch", kind, name, *place, "--type", "merge", "-p", patch])


def _create(version: str, kind: str, metadata: dict[str, str], **fields: Any) -> str:
    manifest = json.dumps({"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata, **fields})
    return f"echo {shlex.quote(manifest)} | kubectl apply -f -"
