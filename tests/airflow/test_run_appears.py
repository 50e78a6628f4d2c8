"""A sensor's trigger waits for a run that does not exist yet, reports it once, and tolerates temporary refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stepset.backends.kubernetes.api.replies import RefusedError, UnauthorizedError
from stepset.errors import InfrastructureError
from stepset_airflow.triggers.run_end import RunEndTrigger, wait_for_object
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at, kubeconfig

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


def trigger_log(run_name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, requests: int) -> list[str]:
    """What the trigger logs until the server has received some requests. The server has the run digits-7 of digits."""
    labels = {"stepset.dev/run": "digits-7", "stepset.dev/job": "digits"}
    about = {"name": "digits-7", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z", "labels": labels}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about, "spec": {}}

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/jobsets"):
            items = [jobset] if query.get("labelSelector") == "stepset.dev/job=digits" else []
            return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        return 404, {"kind": "Status", "code": 404, "message": "no"}

    async def wait() -> None:
        async with ApiServer(answer) as server:
            extra = {"kube_config_path": kubeconfig(directory, server.port), "namespace": "ml"}
            connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
            monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)
            waiting = asyncio.create_task(RunEndTrigger(run_name, poll_interval=0.01)._result())
            while len(server.requests) < requests and not waiting.done():
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    with capture_logs() as entries:
        asyncio.run(wait())
    return [str(entry["event"]) for entry in entries]


def test_the_trigger_reports_a_missing_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = trigger_log("digits-1", tmp_path, monkeypatch, requests=8)
    assert note.startswith("no run is named 'digits-1' in namespace ml; the sensor waits until a run has this name;")


def test_the_trigger_reports_the_newest_run_for_the_name_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (note,) = trigger_log("digits", tmp_path, monkeypatch, requests=8)
    assert "; 'digits' is the name of a job, whose newest run is digits-7; the sensor waits" in note


def test_a_rendered_name_that_no_run_can_have_ends_the_trigger() -> None:
    payload = asyncio.run(RunEndTrigger("nightly.train", kubernetes_conn_id=None)._result())
    assert payload["error"].startswith("run_name: 'nightly.train' cannot be the name of a run;")
