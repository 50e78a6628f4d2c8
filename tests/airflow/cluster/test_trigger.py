"""Triggers in an event loop: they share one watch, do not block, and end no run that a task still waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from airflow.jobs.triggerer_job_runner import _USER_ACTION_CANCEL_MSG
from blockbuster import blockbuster_ctx
from structlog.testing import capture_logs
from yarl import URL

from stepset.backends.kubernetes.stop import delete_ended
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import VERDICT
from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.triggerer.shared_informer import shared_informer
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.jobset_finished import JobSetFinishedEventTrigger
from stepset_airflow.triggers.run_end import RunEndTrigger
from stepset_airflow.triggers.workload_reference import workload_reference
from tests.airflow.cluster.conftest import Tasks
from tests.contract.guard import callbacks_over
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

Connected = Callable[[Path], None]

PRINTS = "for number in range(300): print('line', number, flush=True)"
WRITES = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('0.5')"
PRINTS_LINES_AND_FAILS = """
import json
print(json.dumps({"stepset": {"progress": 0.5}}))
for number in range(100): print("line", number)
raise SystemExit("enough")
"""
SLEEPS = "import time; print('started', flush=True); time.sleep(600)"


@pytest.fixture
def connected(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Connected:
    """`connected(path)`: makes Airflow's connection use this kubeconfig."""

    def to(kubeconfig: Path) -> None:
        extra = {"kube_config_path": str(kubeconfig), "namespace": tasks.runs.namespace}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))

    return to


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of the triggers that the server has answered, such as `GET pods` or `watch pods`."""
    seen: list[str] = []
    request = aiohttp.ClientSession._request

    async def counted(self: aiohttp.ClientSession, method: str, address: Any, **more: Any) -> aiohttp.ClientResponse:
        answer = await request(self, method, address, **more)
        found = URL(address)
        seen.append(f"{'watch' if found.query.get('watch') else method} {found.name}")
        return answer

    monkeypatch.setattr(aiohttp.ClientSession, "_request", counted)
    return seen


def trigger(tasks: Tasks, script: str, run: str = "run", **fields: Any) -> DistributedTrainTrigger:
    """Creates a run, and a trigger that waits for it."""
    made, _ = tasks.runs.backend().make(tasks.runs.request(script, run=run, owner="test"))
    access = ClusterAccess(namespace=tasks.runs.namespace).to_dict()
    return DistributedTrainTrigger(access, workload_reference(made.workload, "jobset"), **fields)


async def event_of(waiting: DistributedTrainTrigger) -> Mapping[str, Any]:
    async for event in waiting.run():
        payload: Mapping[str, Any] = event.payload
        return payload
    raise AssertionError("no event")


def over(payload: Mapping[str, Any]) -> RunStatus:
    assert "error" not in payload, payload
    return RunStatus.from_dict(dict(payload["status"]))


def test_many_triggers_share_one_list_and_watch_of_each_collection_and_nothing_blocks(
    tasks: Tasks, requests: list[str]
) -> None:
    waiting = [trigger(tasks, PRINTS, f"run-{number}", sources=["rank 0"], ranks=[0]) for number in range(3)]
    waiting += [DistributedTrainTrigger(**waiting[0].serialize()[1]) for _ in range(20)]  # as of other triggerers
    requests.clear()  # removes the requests that created the runs

    async def all_of_them() -> list[Mapping[str, Any]]:
        await asyncio.to_thread(_import_all)
        return await asyncio.gather(*map(event_of, waiting))

    with capture_logs() as entries, callbacks_over() as busy, blockbuster_ctx(scanned_modules=PACKAGES):
        payloads = asyncio.run(all_of_them())
    assert {over(payload).phase for payload in payloads} == {Phase.SUCCEEDED}
    for collection in ("jobsets", "pods", "events", "jobs"):
        assert requests.count(f"GET {collection}") == 1, requests
        assert requests.count(f"watch {collection}") <= 2, requests
    assert [each for each in entries if each["event"] == "[rank 0] line 299"]
    for number in range(300):
        assert len([each for each in entries if each["event"] == f"[rank 0] line {number}"]) == len(waiting)
    assert busy == []


PACKAGES = ["stepset", "stepset_airflow"]
"""Their functions raise `blockbuster.BlockingError` if they call a function that may wait in an event loop."""


def _import_all() -> None:
    import importlib

    from stepset_airflow.triggerer.imports import MODULES

    for module in MODULES:
        importlib.import_module(module)


def test_the_serialized_fields_suffice_and_contain_no_credentials(tasks: Tasks) -> None:
    classpath, fields = trigger(tasks, PRINTS, deadline=1e12).serialize()
    assert classpath == "stepset_airflow.triggers.distributed_train.DistributedTrainTrigger"
    stored = json.dumps(fields)
    assert tasks.token() not in stored
    assert "kube_config" not in stored
    again = DistributedTrainTrigger(**json.loads(stored))
    assert again.serialize() == (classpath, fields)
    assert over(asyncio.run(event_of(again))).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("replies", "action", "left"),
    [
        pytest.param(["deferred"], "delete", True, id="its task still waits"),
        pytest.param([None], "delete", True, id="its task was cleared and waits for a worker"),
        pytest.param(["up_for_retry"], "delete", True, id="its worker counts as dead and the next try will continue"),
        pytest.param([ConnectionError("busy")] * 3, "delete", True, id="Airflow does not answer"),
        pytest.param(["failed"], "keep", True, id="the run is to be kept"),
        pytest.param(["failed"], "delete", False, id="its task was marked failed"),
        pytest.param(["restarting"], "delete", False, id="its task was cleared"),
        pytest.param(["deleted"], "delete", False, id="its task was deleted"),
        pytest.param([ConnectionError("busy"), "failed"], "delete", False, id="Airflow answers the second request"),
    ],
)
def test_the_trigger_ends_the_run_only_if_a_user_has_acted_on_its_task(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, replies: list[str | Exception | None], action: str, left: bool
) -> None:
    waiting = trigger(tasks, SLEEPS, on_kill_action=action)
    ti = SimpleNamespace(dag_id="d", task_id="train", run_id="r", map_index=-1)
    waiting.task_instance = ti  # type: ignore[assignment]  # only the fields that are used

    def states(**query: Any) -> dict[str, dict[str, Any]]:
        assert query == {"dag_id": "d", "task_ids": ["train"], "run_ids": ["r"], "map_index": -1}
        if isinstance(state := replies.pop(0), Exception):
            raise state
        return {} if state == "deleted" else {"r": {"train": state}}

    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states", states)
    asyncio.run(waiting.on_kill())
    deleted = [each["metadata"].get("deletionTimestamp") for each in tasks.workloads()]
    assert (deleted == [None]) is left
    if not left:
        assert until(lambda: not tasks.workloads(), 90)


def test_the_run_ends_although_airflow_cancels_again_before_it_calls_on_kill(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = trigger(tasks, SLEEPS)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not entries:
            await asyncio.sleep(0.1)
        waiting.task_instance = SimpleNamespace(dag_id="d", task_id="train", run_id="r", map_index=-1)  # type: ignore[assignment]
        running.cancel(_USER_ACTION_CANCEL_MSG)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(until, lambda: not tasks.workloads())

    failed = {"r": {"train": "failed"}}
    states = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states"
    monkeypatch.setattr(states, lambda **_: failed)
    with capture_logs() as entries:
        asyncio.run(cancelled())


def test_a_sensor_s_trigger_does_not_end_the_run_that_it_waits_for(tasks: Tasks) -> None:
    watched = trigger(tasks, SLEEPS)
    waiting = RunEndTrigger(watched.workload["metadata"]["name"], namespace=tasks.runs.namespace)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not entries:
            await asyncio.sleep(0.1)
        running.cancel(_USER_ACTION_CANCEL_MSG)
        with pytest.raises(asyncio.CancelledError):
            await running
        await waiting.on_kill()

    with capture_logs() as entries:
        asyncio.run(cancelled())
    (workload,) = tasks.workloads()
    assert "deletionTimestamp" not in workload["metadata"]


@pytest.mark.parametrize("turns", range(3))
def test_a_cancelled_trigger_ends_although_the_run_changes_at_the_same_time(tasks: Tasks, turns: int) -> None:
    """For any number of event loop turns in between: the trigger once ignored the cancellation and followed the run."""
    waiting = trigger(tasks, SLEEPS)
    annotate = ("annotate", "jobset", waiting.workload["metadata"]["name"], "some=news", "-n", tasks.runs.namespace)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not entries:
            await asyncio.sleep(0.1)
        async with (
            shared_informer(ClusterAccess(**waiting.access), "jobset") as shared,
            shared.informer.follow(waiting.workload) as beside,
        ):
            beside.changed.clear()
            annotated = asyncio.create_task(asyncio.to_thread(tasks.runs.cluster.kubectl, *annotate))
            while not beside.changed.is_set():
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel(_USER_ACTION_CANCEL_MSG)
            await asyncio.wait({running}, timeout=60)
            assert running.cancelled()
            await annotated

    with capture_logs() as entries:
        asyncio.run(cancelled())


def test_the_trigger_reads_its_credentials_again_when_the_server_refuses_them(
    tasks: Tasks, connected: Connected
) -> None:
    good, bad = tasks.runs.kubeconfig, tasks.runs.directory / "refused.kubeconfig"
    bad.write_text(good.read_text().replace(tasks.token(), "refused"))
    waiting = trigger(tasks, PRINTS)
    connected(bad)

    async def renewed() -> Mapping[str, Any]:
        async with client_of(ClusterAccess(namespace=tasks.runs.namespace)) as client:
            await client.open()
            connected(good)
            assert (await client.get(f"/api/v1/namespaces/{tasks.runs.namespace}/pods")).accepted
        return await event_of(waiting)

    assert over(asyncio.run(renewed())).phase is Phase.SUCCEEDED


def test_credentials_that_the_server_refuses_again_end_the_trigger_with_an_error(
    tasks: Tasks, connected: Connected
) -> None:
    bad = tasks.runs.directory / "refused.kubeconfig"
    bad.write_text(tasks.runs.kubeconfig.read_text().replace(tasks.token(), "refused"))
    waiting = trigger(tasks, SLEEPS)
    connected(bad)
    payload = asyncio.run(event_of(waiting))
    assert "refuses the credentials" in payload["error"]
    assert "refused.kubeconfig" not in payload["error"]


def test_a_deleted_run_is_reported_as_lost(tasks: Tasks) -> None:
    waiting = trigger(tasks, SLEEPS)
    workload = tasks.runs.backend().workload("run")
    assert workload is not None
    tasks.runs.backend().end(workload)
    assert until(lambda: not tasks.workloads(), 90)
    assert over(asyncio.run(event_of(waiting))).phase is Phase.LOST


def test_a_successor_logs_nothing_again_and_knows_the_earlier_output(tasks: Tasks) -> None:
    first = trigger(tasks, PRINTS_LINES_AND_FAILS)
    with capture_logs() as entries:
        received = asyncio.run(event_of(first))
    assert [each["event"] for each in entries].count("[rank 0] line 99") == 1
    assert [each["event"] for each in entries if each["event"].startswith("progress")] == ["progress: 50 %"]
    again = DistributedTrainTrigger(**{**first.serialize()[1], "position": received["position"]})
    with capture_logs() as repeated:
        found = asyncio.run(event_of(again))
    assert [each["event"] for each in repeated] == []
    # `last_line_at` is not compared: the successor reads the log in larger parts, and knows fewer times.
    assert over(found) == over(received)
    assert {**found, "status": None} == {**received, "status": None}
    failure = over(found).failure
    assert failure
    assert "line 99" in failure.tail


def test_a_sensor_s_trigger_waits_for_a_run_that_does_not_exist_yet(tasks: Tasks) -> None:
    waiting = RunEndTrigger("run", namespace=tasks.runs.namespace, poll_interval=0.5)
    assert RunEndTrigger(**waiting.serialize()[1]).serialize() == waiting.serialize()

    async def later() -> Mapping[str, Any]:
        following = asyncio.create_task(event_of(waiting))
        await asyncio.sleep(2)
        request = tasks.runs.request("print('hello')", run="run")
        await asyncio.to_thread(tasks.runs.backend().make, request)
        return await following

    assert over(asyncio.run(later())).phase is Phase.SUCCEEDED


def test_an_asset_watcher_receives_runs_that_end_but_no_earlier_ones(tasks: Tasks, requests: list[str]) -> None:
    backend = tasks.runs.backend()
    assert backend.start(tasks.runs.request("print(1)", run="earlier")).wait().phase is Phase.SUCCEEDED
    # The Job counts its success before the JobSet does, and the watcher reports the JobSet's end.
    place = ("-n", tasks.runs.namespace)
    tasks.runs.cluster.kubectl("wait", "jobset/earlier", "--for=condition=Completed", "--timeout=60s", *place)
    watching = JobSetFinishedEventTrigger(job="job", namespace=tasks.runs.namespace)
    again = JobSetFinishedEventTrigger(**json.loads(json.dumps(watching.serialize()[1])))
    assert again.shared_stream_key() == watching.shared_stream_key()

    async def first() -> Mapping[str, Any]:
        events = again.run()
        received = asyncio.ensure_future(anext(events))
        while not any(each.startswith("watch ") for each in requests):
            await asyncio.wait({received}, timeout=0.1)
        await asyncio.to_thread(backend.make, tasks.runs.request("raise SystemExit(1)", run="failing"))
        await asyncio.to_thread(backend.make, tasks.runs.request(WRITES, run="ours"))
        payload: Mapping[str, Any] = (await received).payload
        await events.aclose()
        return payload

    received = dict(asyncio.run(first()))
    assert received.pop("uid")
    namespace = tasks.runs.namespace
    expected = {"run": "ours", "job": "job", "namespace": namespace, "phase": "Succeeded", "result": 0.5}
    assert received == expected


def test_an_asset_watcher_does_not_believe_the_verdict_of_a_running_or_suspended_run(
    tasks: Tasks, requests: list[str]
) -> None:
    runs, place = tasks.runs, ("-n", tasks.runs.namespace)
    backend = runs.backend()
    forged = json.dumps(RunStatus("x", "job", "kubernetes", Phase.SUCCEEDED, result="forged").to_dict())

    def forge() -> None:
        for name in ("running", "suspended"):
            backend.make(runs.request(SLEEPS, run=name))
        assert until(lambda: backend.status("running").phase is Phase.RUNNING, 120)
        patch = ("--type=merge", "-p", '{"spec": {"suspend": true}}')
        runs.cluster.kubectl("patch", "jobset/suspended", *place, *patch)
        assert until(lambda: backend.status("suspended").phase is Phase.SUSPENDED, 120)
        for name in ("running", "suspended"):
            runs.cluster.kubectl("annotate", f"jobset/{name}", *place, f"{VERDICT}={forged}")
        backend.make(runs.request(WRITES, run="real"))

    async def first() -> Mapping[str, Any]:
        events = JobSetFinishedEventTrigger(namespace=runs.namespace, phases=("Succeeded", "Failed")).run()
        received = asyncio.ensure_future(anext(events))
        while not any(each.startswith("watch ") for each in requests):
            await asyncio.wait({received}, timeout=0.1)
        await asyncio.to_thread(forge)
        payload: Mapping[str, Any] = (await received).payload
        await events.aclose()
        return payload

    received = asyncio.run(first())
    assert (received["run"], received["result"]) == ("real", 0.5)


def test_an_asset_watcher_receives_a_run_that_is_deleted_as_soon_as_its_process_reports_the_end(
    tasks: Tasks, requests: list[str]
) -> None:
    backend = tasks.runs.backend()

    def run_and_delete() -> None:
        backend.start(tasks.runs.request(WRITES, run="brief")).wait()
        workload = backend.workload("brief")
        assert workload is not None
        backend.end(workload, delete_ended)

    async def first() -> Mapping[str, Any]:
        events = JobSetFinishedEventTrigger(namespace=tasks.runs.namespace).run()
        received = asyncio.ensure_future(anext(events))
        while not any(each.startswith("watch ") for each in requests):
            await asyncio.wait({received}, timeout=0.1)
        await asyncio.to_thread(run_and_delete)
        payload: Mapping[str, Any] = (await received).payload
        await events.aclose()
        return payload

    received = asyncio.run(first())
    assert (received["run"], received["phase"], received["result"]) == ("brief", "Succeeded", 0.5)


def test_an_asset_watcher_receives_runs_again_once_its_credentials_are_replaced(
    tasks: Tasks, connected: Connected
) -> None:
    good, bad = tasks.runs.kubeconfig, tasks.runs.directory / "refused.kubeconfig"
    bad.write_text(good.read_text().replace(tasks.token(), "refused"))
    connected(bad)

    async def first() -> Mapping[str, Any]:
        events = JobSetFinishedEventTrigger(namespace=tasks.runs.namespace).run()
        received = asyncio.ensure_future(anext(events))
        with capture_logs() as entries:
            while not any("until this is fixed" in each["event"] for each in entries):
                await asyncio.wait({received}, timeout=0.1)
                assert not received.done()
            connected(good)
            while not any("are reported from now on" in each["event"] for each in entries):
                await asyncio.wait({received}, timeout=0.1)
                assert not received.done()
        await asyncio.to_thread(tasks.runs.backend().make, tasks.runs.request(WRITES, run="ours"))
        payload: Mapping[str, Any] = (await received).payload
        await events.aclose()
        return payload

    assert asyncio.run(first())["run"] == "ours"
