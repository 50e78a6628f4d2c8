"""The workload of a run contains the name of the account that submitted the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.kubernetes.find import find, read_run
from stepset.cli.output.run_table import RunColumns, run_table
from stepset.cli.output.status_page import status_page
from stepset.run_status import RunStatus
from stepset.sources import read_sources
from stepset.spec import TrainingJob
from stepset.targets.request import TARGET_NAMES
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.stored_objects import StoredObjects
from tests.kubernetes.submitting import submit
from tests.targets.making import request

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def submitted(target: str, review: tuple[int, Any]) -> tuple[RunStatus, bool]:
    """Submits a run, and returns its state and whether a server stores an object with the annotation.

    Args:
        review: the reply to the SelfSubjectReview.
    """

    async def reading() -> tuple[RunStatus, bool]:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            return review if path == REVIEW else objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            namespaced = NamespacedClient(client, "ns")
            await submit(namespaced, request(run="run"), target)
            status = await read_run(namespaced, await find(namespaced, "run", (target,)), 0.0)
        marked = [
            each for each in objects.by_path.values() if "stepset.dev/submitted-by" in str(each.get("metadata", {}))
        ]
        return status, bool(marked)

    return asyncio.run(reading())


@pytest.mark.parametrize("target", ["jobset", "job"])
def test_the_state_of_a_run_contains_the_account(target: str) -> None:
    status, _ = submitted(target, (201, {"status": {"userInfo": {"username": "jane@example.com"}}}))
    assert status.submitted_by == "jane@example.com"
    assert "submitted by  jane@example.com" in status_page(status)
    assert "jane@example.com" in run_table([status], RunColumns(wide=True))
    assert "SUBMITTED BY" not in run_table([status], RunColumns())
    assert status.to_dict()["submitted_by"] == "jane@example.com"


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_state_that_submit_returns_contains_the_account_and_the_other_metadata(target: str) -> None:
    async def submitting() -> RunStatus:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            review = (201, {"status": {"userInfo": {"username": "jane@example.com"}}})
            return review if path == REVIEW else objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            runs = ClusterRuns(NamespacedClient(client, "ns"), target=target)
            job = TrainingJob(command=["python", "train.py"], image="a", labels={"team": "b"})
            return await runs.submit(RunRequest(job, read_sources(job), name="run"))

    status = asyncio.run(submitting())
    found = (status.submitted_by, status.namespace, status.labels, status.program)
    assert found == ("jane@example.com", "ns", {"team": "b"}, "python train.py")


@pytest.mark.parametrize(
    "review", [(403, {"kind": "Status", "message": "no"}), (404, {}), (500, {}), (201, {}), (201, {"status": 7})]
)
def test_a_run_is_submitted_if_the_server_does_not_report_the_account(review: tuple[int, Any]) -> None:
    status, marked = submitted("jobset", review)
    assert status.submitted_by == "" and not marked
    assert "submitted by" not in status_page(status)
