"""Checks a cluster: the connection, the account's permissions, the controllers, the GPUs and a queue."""

from __future__ import annotations

from collections.abc import Iterator

from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.submit.queues import read_queue
from stepset.backends.kubernetes.submit.survey import Survey, survey
from stepset.cli.doctor.findings import Finding, State, finding, no_connection
from stepset.cli.doctor.queue import queue_findings
from stepset.errors import BadInputError, InfrastructureError
from stepset.watch.present.sentences import counted


def cluster_findings(
    kubeconfig: str | None, context: str | None, namespace: str | None, target: str, queue: str | None = None
) -> Iterator[Finding]:
    """Yields the result of each check of a cluster. The checks create no objects.

    `queue` is the name of a LocalQueue of Kueue. None means that no queue is checked.
    """
    try:
        connection = connect(kubeconfig, context, "cli")
    except BadInputError as error:
        yield no_connection("problem", error)
        return
    place = namespace or connection.namespace
    grant = Grant("cli", (target,), gang="none" if queue is None else "kueue")
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
