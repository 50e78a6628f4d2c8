"""Checks a cluster: the connection, the account's permissions, the controllers, the GPUs and a queue of Kueue."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.queues import QueueObjects, inactive, read_queue
from stepset.backends.kubernetes.submit.survey import Survey, survey
from stepset.cli.doctor.findings import Finding, State, finding, no_connection
from stepset.errors import BadInputError, InfrastructureError
from stepset.unstructured import part, text
from stepset.watch.present.sentences import counted

_MISSING_FLAVOR = re.compile(r"missing ResourceFlavor\(s\): ([\w-]+)")
_INSTALL = "install it: https://kueue.sigs.k8s.io/docs/installation/"


def cluster_findings(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    target: str,
    queue: str | None = None,
    *,
    read_only: bool = False,
) -> Iterator[Finding]:
    """Yields the result of each check of a cluster. The checks create no objects.

    Args:
        queue: the name of a LocalQueue of Kueue. None means that no queue is checked.
        read_only: whether to check only the permissions to read runs.
    """
    try:
        connection = connect(kubeconfig, context, "cli")
    except BadInputError as error:
        yield no_connection("problem", error)
        return
    place = namespace or connection.namespace
    grant = Grant("cli", (target,), gang="none" if queue is None else "kueue", read_only=read_only)
    try:
        with connection:
            found = connection.call(survey, connection.client, place, grant)
            yield from _findings(connection, found)
            if queue is not None and not found.no_namespace:
                objects = connection.call(read_queue, connection.client, place, queue)
                yield from queue_findings(place, queue, objects, grant.command(place, found.account))
    except (BadInputError, InfrastructureError) as error:
        yield no_connection("unreachable", error)


def _findings(connection: Connection, found: Survey) -> Iterator[Finding]:
    yield finding("cluster", "ok", f"{connection.server}: Kubernetes {found.version}")
    if found.no_namespace:
        text, _, fix = found.no_namespace.removeprefix("namespace: ").partition("; ")
        yield finding("namespace", "problem", text, fix.removeprefix("create it: ").partition("; or ")[0])
    elif found.missing or found.notes:
        yield from (_permission_finding("problem", line) for line in found.missing)
        yield from (_permission_finding("note", line) for line in found.notes)
    else:
        yield finding("permissions", "ok", f"all {found.permissions} for the target in namespace {found.namespace}")
    if found.absent:
        text, _, fix = found.absent.removeprefix("target: ").partition("; ")
        yield finding("controllers", "problem", text, fix)
    if found.served:
        yield finding("controllers", "ok", f"targets: {', '.join(found.served)}")
    if found.gpus is None:
        yield finding("cluster GPUs", "note", "you may not list nodes, so the GPUs are unknown")
    else:
        each = [f"{counted(number, 'device')} {name}" for name, number in sorted(found.gpus.items())]
        yield finding("cluster GPUs", "ok", ", ".join(each) or "the nodes offer none")


def _permission_finding(state: State, line: str) -> Finding:
    text, _, fix = line.replace("rbac: ", "", 1).partition("; have an administrator run: ")
    return finding("permissions", state, text, fix)


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
    if found.excludes:
        return finding("queue", "problem", found.excludes, f"kubectl edit clusterqueue {shlex.quote(of)}")
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
