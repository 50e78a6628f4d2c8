"""Only runs are suspended and deleted: another workload of the given name stays as it is, with one message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.follow import Stop
from stepset.backends.kubernetes.stop import delete, suspend
from stepset.errors import BadInputError
from stepset.targets.metadata import RUN, SUBMITTED_BY
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at

WORKLOADS = {"StatefulSet": "apps/v1", "Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
CONTROLLER = {"apiVersion": "example/v1", "kind": "Database", "name": "db", "uid": "d", "controller": True}
FOREIGN: dict[str, dict[str, Any]] = {
    "no label": {"labels": {"app": "postgres"}},
    "a part of another object": {"labels": {RUN: "postgres"}, "ownerReferences": [CONTROLLER]},
}


def stopped(stop: Stop, workload: dict[str, Any], stored: dict[str, Any]) -> tuple[str, list[str]]:
    """The error of `stop`, and the methods of its requests.

    Args:
        stop: `delete` or `suspend`.
        workload: what the caller knows of the workload.
        stored: what the server returns.
    """

    async def run() -> tuple[str, list[str]]:
        error = ""
        async with ApiServer(lambda *_: (200, stored)) as server, client_at(server.port) as client:
            try:
                await stop(NamespacedClient(client, "ns"), workload)
            except BadInputError as refused:
                error = str(refused)
            return error, [method for method, _, _ in server.requests]

    return asyncio.run(run())


@pytest.mark.parametrize("stop", [delete, suspend], ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("known", [True, False], ids=["labels known", "labels unknown"])
def test_a_workload_that_is_no_run_is_not_changed(stop: Stop, kind: str, foreign: str, known: bool) -> None:
    metadata = {"name": "postgres", "uid": "u", "namespace": "ns"}
    stored = {"apiVersion": WORKLOADS[kind], "kind": kind, "metadata": {**metadata, **FOREIGN[foreign]}, "spec": {}}
    error, methods = stopped(stop, stored if known else {**stored, "metadata": metadata}, stored)
    assert error.startswith(f"{kind} postgres is not a run of stepset")
    assert methods == ([] if known else ["GET"])


@pytest.mark.parametrize(("stop", "method"), [(delete, "DELETE"), (suspend, "PATCH")])
def test_a_run_is_stopped(stop: Stop, method: str) -> None:
    about = {"labels": {RUN: "run"}, "annotations": {SUBMITTED_BY: "user"}}  # submitted by stepset, and not applied
    metadata = {"name": "run", "uid": "u", "namespace": "ns", **about}
    run = {"apiVersion": WORKLOADS["JobSet"], "kind": "JobSet", "metadata": metadata, "spec": {}}
    assert stopped(stop, run, run) == ("", [method])
