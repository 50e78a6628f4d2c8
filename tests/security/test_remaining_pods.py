"""Pods of a deleted TrainJob: pods that another user has created keep no run from ending or from starting again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.stop import has_pods
from stepset.errors import InfrastructureError
from stepset.targets.metadata import RUN
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.stored_objects import StoredObjects
from tests.kubernetes.submitting import submit
from tests.targets.making import request

TRAINJOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "run", "uid": "u"}}


def pod(kind: str = "Job", name: str = "run-node-0", phase: str = "Running", **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "j", "controller": True}
    about = {"name": "p", "uid": "p", "labels": {RUN: "run"}, "ownerReferences": [owner] if kind else [], **fields}
    return {"metadata": about, "spec": {}, "status": {"phase": phase}}


FOREIGN = {
    "without an owner": pod(kind=""),
    "of another kind": pod(kind="Node", name="run-node"),
    "of another Job": pod(name="preparation"),
    "kept by its finalizer": pod(phase="Pending", deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["a/b"]),
}


def stored(found: dict[str, Any]) -> tuple[bool, str]:
    """Whether the deleted run has pods beside this one, and the error of a submission of the same name."""
    server: ApiServer
    objects = StoredObjects(lambda: server.bodies[-1][2])
    objects.by_path["/api/v1/namespaces/ns/pods/p"] = found

    async def run() -> tuple[bool, str]:
        nonlocal server
        async with ApiServer(objects.answer) as server, client_at(server.port) as client:
            namespaced, error = NamespacedClient(client, "ns"), ""
            remains = await has_pods(namespaced, TRAINJOB)
            try:
                await submit(namespaced, request(run="run"), "trainjob")
            except InfrastructureError as refused:
                error = str(refused)
            return remains, error

    return asyncio.run(run())


@pytest.mark.parametrize("name", FOREIGN)
def test_a_pod_of_another_user_does_not_count(name: str) -> None:
    assert stored(FOREIGN[name]) == (False, "")


def test_a_pod_of_the_run_delays_the_next_run_of_its_name_until_it_has_ended() -> None:
    remains, error = stored(pod())
    assert remains and error == "run run is being deleted; try again when it is deleted"
    assert stored(pod(phase="Failed")) == (False, "")
