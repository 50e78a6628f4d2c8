"""A sensor's trigger waits for a run that does not exist yet, and tolerates temporary refusals as watches do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from stepset.backends.kubernetes.api.replies import RefusedError, UnauthorizedError
from stepset.errors import InfrastructureError
from stepset_airflow.triggers.run_end import wait_for_object
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at

pytestmark = pytest.mark.airflow

PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/run"


def run_after(*statuses: int) -> Mapping[str, Any]:
    """The result for a server that replies with these statuses and then with the run."""
    answers = iter(statuses)

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        status = next(answers, 200)
        return status, {"kind": "JobSet"} if status == 200 else {"kind": "Status", "code": status, "message": "no"}

    async def wait() -> Mapping[str, Any]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            return await wait_for_object(client, PATH, 0.01)

    return asyncio.run(wait())


@pytest.mark.parametrize("between", [(404, 404), (404, 401, 401, 404), (404, 403), (503, 401), (500, 503)])
def test_the_trigger_waits_through_temporary_refusals(between: tuple[int, ...]) -> None:
    assert run_after(*between) == {"kind": "JobSet"}


@pytest.mark.parametrize(("status", "error"), [(401, UnauthorizedError), (403, RefusedError)])
def test_a_server_that_has_never_accepted_a_request_fails_the_trigger(
    status: int, error: type[InfrastructureError]
) -> None:
    with pytest.raises(error):
        run_after(*[status] * 4)
