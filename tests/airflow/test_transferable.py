"""Airflow's processes can send and store any result of a training; one that they cannot would end a triggerer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.execution_time.comms import _RequestFrame
from airflow.sdk.log import mask_secret
from airflow.sdk.serde import deserialize, serialize
from airflow.triggers.base import TriggerEvent
from hypothesis import example, given
from hypothesis import strategies as st

from stepset.run_status import Phase, Progress, RunStatus
from stepset.targets.metadata import RUN as RUN_LABEL
from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.verdict import verdict_text
from stepset_airflow.assets import event_extra
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.run.trigger_event import reported_status
from stepset_airflow.run_record import RunRecord
from stepset_airflow.transferable import masked, transferable
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.jobset_finished import JobSetFinishedEventTrigger
from stepset_airflow.triggers.workload_reference import workload_reference
from tests.fuzzing import FUZZED
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig

pytestmark = pytest.mark.airflow

RESERVED = ("__classname__", "__version__", "__data__", "__id__", "__type", "__var")
SECRET = "planted-0f3b"
HOSTILE = {
    **dict.fromkeys(RESERVED, "os.system"),
    "large": [2**64, -(2**63) - 1, 10**400],
    "not finite": [float("nan"), float("inf")],
    "surrogate \udfff": "\ud800",
    "note": f"the password is {SECRET}",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(RESERVED) | st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def check_airflow_accepts(value: Any) -> None:
    """Sends a value as a trigger's event, and stores it as the arguments of the task and as JSON of a database."""
    event = TriggerEvent({"value": value})  # type: ignore[no-untyped-call]  # Airflow's
    assert _RequestFrame(id=1, body={"events": [event.model_dump()]}).as_bytes()
    assert deserialize(serialize({"event": value})) == {"event": value}
    json.dumps(value, allow_nan=False).encode()


@FUZZED
@given(VALUES)
@example(HOSTILE)
@example(2**64)
@example(-(2**63))
def test_any_value_is_accepted_by_airflow(value: Any) -> None:
    check_airflow_accepts(transferable(value))
    assert transferable(transferable(value)) == transferable(value)


@FUZZED
@given(st.dictionaries(st.text("abc"), st.integers(-(2**63), 2**64 - 1) | st.text("äb") | st.booleans() | st.none()))
def test_an_ordinary_value_is_unchanged(value: Any) -> None:
    assert transferable(value) == value


def jobset(phase: str) -> dict[str, Any]:
    """A JobSet with a verdict whose result and metrics a training has chosen."""
    progress = Progress(1, 0.5, {"__classname__": 1.0})
    status = RunStatus("run", "run", "kubernetes", Phase.SUCCEEDED, result=HOSTILE, progress=progress)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "run",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {RUN_LABEL: "run"},
            "annotations": {VERDICT: verdict_text(status)} if phase else {},
        },
        "spec": {},
        "status": {"conditions": [{"type": phase, "status": "True"}] if phase else []},
    }


async def first_event(trigger: Any, server: ApiServer, tmp_path: Path, patch: pytest.MonkeyPatch) -> Any:
    async with server:
        extra = {"kube_config_path": kubeconfig(tmp_path, server.port), "namespace": "ns"}
        patch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))
        events: AsyncGenerator[TriggerEvent, None] = trigger.run()
        async with aclosing(events):
            return (await anext(events)).payload


def test_the_event_and_the_record_of_a_task_do_not_depend_on_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        run = jobset("Completed")
        if path.endswith("/jobsets/run"):
            return 200, run
        items = [run] if path.endswith("/jobsets") else []
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}

    mask_secret(SECRET)
    trigger = DistributedTrainTrigger(
        ClusterAccess(namespace="ns").to_dict(), workload_reference(jobset("Completed"), "jobset")
    )
    payload = asyncio.run(first_event(trigger, ApiServer(answer), tmp_path, monkeypatch))
    check_airflow_accepts(payload)
    status = reported_status(payload)
    assert status.phase is Phase.SUCCEEDED
    assert status.result["___type"] == "os.system"
    assert status.result["note"] == "the password is ***"
    check_airflow_accepts(event_extra(status, None))
    record = RunRecord("run", "ns").with_end("succeeded", payload["status"]).to_dict()
    check_airflow_accepts(record)
    assert RunRecord.from_dict(record)


def test_the_event_of_another_users_run_does_not_end_the_triggerer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        ended = jobset("Completed")
        ended["metadata"]["resourceVersion"] = "8"
        if "watch" in query:
            return 200, [{"type": "MODIFIED", "object": ended}] if path.endswith("/jobsets") else None
        items = [jobset("")] if path.endswith("/jobsets") else []
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}

    mask_secret(SECRET)
    trigger = JobSetFinishedEventTrigger(namespace="ns")
    payload = asyncio.run(asyncio.wait_for(first_event(trigger, ApiServer(answer), tmp_path, monkeypatch), 30))
    assert payload["phase"] == "Succeeded"
    assert payload["result"]["note"] == "the password is ***"
    check_airflow_accepts(payload)


def test_keys_that_are_equal_without_their_secrets_keep_their_values() -> None:
    for secret in ("planted-1st-key", "planted-2nd-key"):
        mask_secret(secret)
    assert masked({"planted-1st-key": 1, "planted-2nd-key": 2, "loss": 3}) == {"***": 1, "***_2": 2, "loss": 3}
