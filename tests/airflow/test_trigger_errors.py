"""An unexpected error in a trigger is written to the task's log and retried; at last the wait ends, not the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stepset.backends.kubernetes.follow import RunFollower
from stepset.run_status import RunStatus
from stepset.watch import retries
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.triggers import distributed_train
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.workload_reference import workload_reference
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig

pytestmark = pytest.mark.airflow

RUN: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "run", "uid": "u", "resourceVersion": "1", "labels": {"stepset.dev/run": "run"}},
    "spec": {},
    "status": {"conditions": [{"type": "Failed", "status": "True"}]},
}
PROBLEM = "following the run failed unexpectedly: ZeroDivisionError('a defect')"


def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
    """Answers for a run that has failed."""
    if path.endswith("/jobsets/run"):
        return 200, RUN
    items = [RUN] if path.endswith("/jobsets") else []
    return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}


@pytest.mark.parametrize(("times", "lasting", "ends"), [(10, False, False), (1000, False, True), (30, True, False)])
def test_an_unexpected_error_is_retried_ten_times_in_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: int, lasting: bool, ends: bool
) -> None:
    """`lasting`: the run was followed for a while before each error."""
    monkeypatch.setattr(retries, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(retries, "LONGEST_DELAY", 0.01)
    if lasting:
        monkeypatch.setattr(distributed_train, "_FOLLOWED_FOR", 0.0)
    left, follow = [times], RunFollower.follow

    async def fails(self: RunFollower, timeout: float | None = None) -> RunStatus:
        if left[0] > 0:
            left[0] -= 1
            raise ZeroDivisionError("a defect")
        return await follow(self, timeout)

    monkeypatch.setattr(RunFollower, "follow", fails)

    async def payload() -> tuple[Mapping[str, Any], list[str]]:
        async with ApiServer(answer) as server:
            extra = {"kube_config_path": kubeconfig(tmp_path, server.port), "namespace": "ns"}
            connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
            monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)
            access = ClusterAccess(namespace="ns").to_dict()
            trigger = DistributedTrainTrigger(access, workload_reference(RUN, "jobset"))
            (event,) = [each async for each in trigger.run()]
            return event.payload, [method for method, _, _ in server.requests]

    with capture_logs() as entries:
        found, methods = asyncio.run(payload())
    warnings = [each["event"] for each in entries if each["log_level"] == "warning"]
    assert warnings.count(f"{PROBLEM}; trying again") == (10 if ends else times)
    assert set(methods) <= {"GET"}
    if ends:
        assert found == {"error": f"{PROBLEM}; the run continues"}
    else:
        assert found["status"]["phase"] == "Failed"
