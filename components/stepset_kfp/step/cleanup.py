"""Deletes the trainings that a pipeline's run has left: the body of the component `cleanup_training`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.targets.request import check_target
from stepset.watch.state import Phase
from stepset_kfp.backend import backend_name, in_kfp_pod
from stepset_kfp.step.owner import PIPELINE_RUN, identity_of, own_pod
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.step.train import fail

Manifest = Mapping[str, Any]


def clean_up(given: Mapping[str, Any]) -> None:
    """Deletes the runs; fails the step if they cannot be deleted."""
    try:
        if backend_name(given["backend"], os.environ) == "local":
            log_lines("stepset: local runs end with their steps; there is nothing to delete")
            return
        _delete(given)
    except StepsetError as error:
        fail(str(error), int(error.exit_code))


def _delete(given: Mapping[str, Any]) -> None:
    target = given["target"] or "jobset"
    check_target(target)
    with connect() as connection:
        namespace = given["namespace"] or connection.namespace
        backend = KubernetesBackend(connection, namespace=namespace, target=target)
        for workload in _runs(connection, namespace, target, given["run"]):
            name = workload["metadata"]["name"]
            succeeded = backend.read(workload).phase is Phase.SUCCEEDED
            if succeeded and not given["succeeded_too"]:
                log_lines(f"stepset: run {name} has succeeded and is kept")
                continue
            backend.end(workload)
            log_lines(f"stepset: run {name} is deleted")


def _runs(connection: Connection, namespace: str, target: str, run: str) -> Iterator[Manifest]:
    kind = WORKLOADS[target]
    if run:
        reply = connection.get(f"{kind.path(namespace)}/{run}")
        if reply.accepted:
            yield reply.body
        return
    if not in_kfp_pod(os.environ):
        raise BadInputError("run: is required outside of a pipeline's pod; give a run's name")
    identity = identity_of(own_pod(connection, os.environ["KFP_POD_NAME"]))
    reply = connection.get(kind.path(namespace), {"labelSelector": f"{PIPELINE_RUN}={identity.run_id}"})
    if not reply.accepted:
        raise InfrastructureError(f"runs cannot be listed: {reply.body.get('message', reply.status)}; see stepset rbac")
    version = f"{kind.group}/{kind.version}"
    for each in reply.body.get("items") or ():
        yield {"apiVersion": version, "kind": reply.body["kind"].removesuffix("List"), **each}
