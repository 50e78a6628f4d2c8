"""The body of the component `cleanup_training`, which deletes the training runs of a pipeline run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.stop import check_run
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.run_status import Phase
from stepset.targets.request import check_target
from stepset_kfp.backend import backend_name, in_kfp_pod
from stepset_kfp.step.executor_input import decoded_inputs
from stepset_kfp.step.owner import PIPELINE_RUN, identity_of, own_pod
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.step.train import fail

Manifest = Mapping[str, Any]


def clean_up(component_inputs: Mapping[str, Any]) -> None:
    """Deletes the runs that the inputs select. If a run cannot be deleted, ends the step as failed."""
    try:
        given = decoded_inputs(component_inputs)
        if backend_name(given["backend"], os.environ) == "local":
            log_lines("stepset: local runs end with their steps; there is nothing to delete")
            return
        _delete(given)
    except StepsetError as error:
        fail(str(error), int(error.exit_code))


def _delete(given: Mapping[str, Any]) -> None:
    target = given["target"] or "jobset"
    check_target(target)
    with connect(interface="kfp") as connection:
        namespace = given["namespace"] or connection.namespace
        backend = KubernetesBackend(connection, namespace=namespace, target=target, interface="kfp")
        for workload in _runs(connection, namespace, target, given["run"]):
            check_run(workload)
            name = workload["metadata"]["name"]
            succeeded = backend.read(workload).phase is Phase.SUCCEEDED
            if succeeded and not given["succeeded_too"]:
                log_lines(f"stepset: run {name} has succeeded and is kept")
                continue
            backend.end(workload)
            log_lines(f"stepset: run {name} is deleted")


def _runs(connection: Connection, namespace: str, target: str, run: str) -> Iterator[Manifest]:
    kind, namespaced = WORKLOADS[target], NamespacedClient(connection.client, namespace, Grant("kfp", (target,)))
    if run:
        reply = connection.get(f"{kind.path(namespace)}/{run}")
        if reply.accepted:
            yield reply.body
        elif not reply.lacks_object:
            raise InfrastructureError(f"run {run} cannot be read: {namespaced.with_remedy(RefusedError(reply))}")
        return
    if not in_kfp_pod(os.environ):
        raise BadInputError("run: is required outside of a pipeline's pod; give a run's name")
    identity = identity_of(own_pod(connection, os.environ["KFP_POD_NAME"], target))
    reply = connection.get(kind.path(namespace), {"labelSelector": f"{PIPELINE_RUN}={identity.run_id}"})
    if not reply.accepted:
        raise InfrastructureError(f"runs cannot be listed: {namespaced.with_remedy(RefusedError(reply))}")
    version = f"{kind.group}/{kind.version}"
    for each in reply.body.get("items") or ():
        yield {"apiVersion": version, "kind": reply.body["kind"].removesuffix("List"), **each}
