"""The deletion of a run whose manifests a user has applied: the other objects of the run are deleted, too."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.stop import delete
from stepset.rendering import render
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.stored_objects import StoredObjects
from tests.kubernetes.submitting import submit
from tests.targets.making import request

OWNED = {
    "jobset": ["configmaps/run-agent", "configmaps/run-code", "networkpolicies/run"],
    "trainjob": ["configmaps/run-agent", "configmaps/run-code", "networkpolicies/run", "trainingruntimes/run"],
    "statefulset": ["configmaps/run-agent", "configmaps/run-code", "networkpolicies/run", "services/run"],
    "job": ["configmaps/run-agent", "configmaps/run-code", "networkpolicies/run", "services/run"],
}
JOB: dict[str, Any] = {"network": {"policy": True}}


def path_of(manifest: dict[str, Any]) -> str:
    return f"{resource_of(manifest).path('ns')}/{manifest['metadata']['name']}"


def deleted(
    target: str, *, changed: dict[str, dict[str, Any]] | None = None, refused: str = "", **fields: Any
) -> tuple[list[str], list[str]]:
    """Deletes an applied run. Returns the objects that it owned at that time, and the methods of all requests.

    Args:
        changed: fields of `metadata` that replace those of an applied object.
        refused: the plural of the kind whose objects the account may not change.
        fields: fields of the job.
    """
    owned: list[str] = []

    async def call() -> list[str]:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        for manifest in render(request(run="run", **JOB, **fields), target):
            metadata = {"uid": f"uid-{path_of(manifest)}", "resourceVersion": "0", **manifest["metadata"]}
            metadata |= (changed or {}).get(metadata["name"], {})
            objects.by_path[path_of(manifest)] = {**manifest, "metadata": metadata}
        workload = list(objects.by_path.values())[-1]

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if method == "DELETE":
                of_run = [{"uid": workload["metadata"]["uid"], "kind": workload["kind"]}]
                owned.extend(
                    "/".join(place.split("/")[-2:])
                    for place, each in objects.by_path.items()
                    if [
                        {key: owner[key] for key in ("uid", "kind")}
                        for owner in each["metadata"].get("ownerReferences", ())
                    ]
                    == of_run
                )
            if method == "PATCH" and refused and refused in path:
                return 403, {"kind": "Status", "code": 403, "message": "no"}
            return objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            await delete(NamespacedClient(client, "ns"), workload)
            return [method for method, _, _ in server.requests]

    methods = asyncio.run(call())
    return sorted(owned), methods


@pytest.mark.parametrize("target", OWNED)
def test_the_workload_owns_the_objects_of_the_run_before_it_is_deleted(target: str) -> None:
    assert deleted(target)[0] == OWNED[target]


def test_an_object_of_another_run_or_owner_is_not_changed() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
    changed = {
        "run-agent": {"labels": {"stepset.dev/run": "other"}},
        "run-code": {"ownerReferences": [owner]},
    }
    assert deleted("jobset", changed=changed)[0] == ["networkpolicies/run"]


def test_an_object_that_the_account_may_not_change_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert deleted("jobset", refused="networkpolicies")[0] == ["configmaps/run-agent", "configmaps/run-code"]
    assert caplog.messages == [
        "an object of the run remains: networkpolicies run, because no; delete it: kubectl delete networkpolicies run"
        " -n ns"
    ]


def test_the_secret_of_an_mpi_run_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    owned, _ = deleted("jobset", framework="mpi")
    assert not [each for each in owned if each.startswith("secrets/")]
    (line,) = caplog.messages
    assert line.endswith("delete it: kubectl delete secrets run-mpi-ssh-auth -n ns")


def test_the_deletion_of_a_submitted_run_takes_one_request() -> None:
    methods: list[str] = []

    async def call() -> None:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if path.endswith("selfsubjectreviews"):
                return 201, {"status": {"userInfo": {"username": "jane"}}}
            return objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            namespaced = NamespacedClient(client, "ns")
            made = await submit(namespaced, request(run="run"), "jobset")
            before = len(server.requests)
            await delete(namespaced, made.workload)
            methods.extend(method for method, _, _ in server.requests[before:])

    asyncio.run(call())
    assert methods == ["DELETE"]
