"""The trigger in an event loop: many share one watch, nothing blocks, and no run is killed that is still waited for."""

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
from structlog.testing import capture_logs
from yarl import URL

from stepset.watch.state import Phase, RunStatus
from stepset_airflow.hooks.cluster import ClusterAccess, client_of
from stepset_airflow.triggerer.shared_informer import shared_informer
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.jobset_finished import JobSetFinishedEventTrigger
from stepset_airflow.triggers.run_end import RunEndTrigger
from stepset_airflow.triggers.workload_reference import workload_reference
from tests.airflow.cluster.blocking import blocked_for
from tests.airflow.cluster.conftest import Tasks
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

Connected = Callable[[Path], None]

PRINTS = "for number in range(300): print('line', number, flush=True)"
WRITES = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('0.5')"
SAYS_MUCH_AND_FAILS = """
import json
print(json.dumps({"stepset": {"progress": 0.5}}))
for number in range(100): print("line", number)
raise SystemExit("enough")
"""
SLEEPS = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def connected(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Connected:
    """`connected(path)`: Airflow's connection names this kubeconfig from now on."""

    def to(kubeconfig: Path) -> None:
        extra = {"kube_config_path": str(kubeconfig), "namespace": tasks.runs.namespace}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))

    return to


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the triggers ask the server for, such as `GET pods` or `watch pods`, once it is answered."""
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
    """A trigger that waits for a new run."""
    made, _ = tasks.runs.backend().make(tasks.runs.request(script, run=run, owner="somebody"))
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
    tasks: Tasks, asked: list[str]
) -> None:
    waiting = [trigger(tasks, PRINTS, f"run-{number}", sources=["rank 0"], ranks=[0]) for number in range(3)]
    waiting += [DistributedTrainTrigger(**waiting[0].serialize()[1]) for _ in range(20)]  # of other triggerers, say
    asked.clear()  # what it took to make the runs

    async def all_of_them() -> list[Mapping[str, Any]]:
        await asyncio.to_thread(_import_all)
        return await asyncio.gather(*map(event_of, waiting))

    with capture_logs() as said, blocked_for(SLOW) as slow:
        payloads = asyncio.run(all_of_them())
    assert {over(payload).phase for payload in payloads} == {Phase.SUCCEEDED}
    for collection in ("jobsets", "pods", "events", "jobs"):
        assert asked.count(f"GET {collection}") == 1, asked
        assert asked.count(f"watch {collection}") <= 2, asked
    assert [each for each in said if each["event"] == "[rank 0] line 299"]
    for number in range(300):
        assert len([each for each in said if each["event"] == f"[rank 0] line {number}"]) == len(waiting)
    # This test itself makes all their tasks at once.
    assert [each for each in slow if all_of_them.__qualname__ not in each] == []


SLOW = 0.1
"""Seconds; what asyncio itself calls slow. Threads that import hold the interpreter for part of it."""


def _import_all() -> None:
    import importlib

    from stepset_airflow.triggerer.imports import MODULES

    for module in MODULES:
        importlib.import_module(module)


def test_its_serialized_fields_are_all_it_needs_and_hold_no_credentials(tasks: Tasks) -> None:
    classpath, fields = trigger(tasks, PRINTS, deadline=1e12).serialize()
    assert classpath == "stepset_airflow.triggers.distributed_train.DistributedTrainTrigger"
    stored = json.dumps(fields)
    assert tasks.token() not in stored
    assert "kube_config" not in stored
    again = DistributedTrainTrigger(**json.loads(stored))
    assert again.serialize() == (classpath, fields)
    assert over(asyncio.run(event_of(again))).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("said", "action", "left"),
    [
        pytest.param(["deferred"], "delete", True, id="its task still waits"),
        pytest.param([None], "delete", True, id="its task was cleared and waits for a worker"),
        pytest.param(["up_for_retry"], "delete", True, id="its worker is held for dead and the next try is to go on"),
        pytest.param([ConnectionError("busy")] * 3, "delete", True, id="nobody knows"),
        pytest.param(["failed"], "keep", True, id="it is to be kept"),
        pytest.param(["failed"], "delete", False, id="its task was marked failed"),
        pytest.param(["restarting"], "delete", False, id="its task was cleared"),
        pytest.param(["deleted"], "delete", False, id="its task is no more"),
        pytest.param([ConnectionError("busy"), "failed"], "delete", False, id="Airflow says so when it is asked again"),
    ],
)
def test_it_ends_the_run_only_if_a_user_has_acted_on_its_task(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, said: list[str | Exception | None], action: str, left: bool
) -> None:
    waiting = trigger(tasks, SLEEPS, on_kill_action=action)
    ti = SimpleNamespace(dag_id="d", task_id="train", run_id="r", map_index=-1)
    waiting.task_instance = ti  # type: ignore[assignment]  # what of it is used

    def states(**asked: Any) -> dict[str, dict[str, Any]]:
        assert asked == {"dag_id": "d", "task_ids": ["train"], "run_ids": ["r"], "map_index": -1}
        if isinstance(state := said.pop(0), Exception):
            raise state
        return {} if state == "deleted" else {"r": {"train": state}}

    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states", states)
    asyncio.run(waiting.on_kill())
    deleted = [each["metadata"].get("deletionTimestamp") for each in tasks.workloads()]
    assert (deleted == [None]) is left
    if not left:
        assert until(lambda: not tasks.workloads(), 90)


def test_the_run_ends_though_airflow_s_next_cancelling_comes_before_it_calls_on_kill(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = trigger(tasks, SLEEPS)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not said:
            await asyncio.sleep(0.1)
        waiting.task_instance = SimpleNamespace(dag_id="d", task_id="train", run_id="r", map_index=-1)  # type: ignore[assignment]
        running.cancel(_USER_ACTION_CANCEL_MSG)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(until, lambda: not tasks.workloads())

    failed = {"r": {"train": "failed"}}
    states = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states"
    monkeypatch.setattr(states, lambda **_: failed)
    with capture_logs() as said:
        asyncio.run(cancelled())


def test_whoever_waits_for_a_run_of_somebody_else_s_does_not_end_it(tasks: Tasks) -> None:
    watched = trigger(tasks, SLEEPS)
    waiting = RunEndTrigger(watched.workload["metadata"]["name"], namespace=tasks.runs.namespace)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not said:
            await asyncio.sleep(0.1)
        running.cancel(_USER_ACTION_CANCEL_MSG)
        with pytest.raises(asyncio.CancelledError):
            await running
        await waiting.on_kill()

    with capture_logs() as said:
        asyncio.run(cancelled())
    (workload,) = tasks.workloads()
    assert "deletionTimestamp" not in workload["metadata"]


@pytest.mark.parametrize("turns", range(3))
def test_it_ends_with_its_task_though_news_of_the_run_comes_as_it_is_cancelled(tasks: Tasks, turns: int) -> None:
    """However many turns of the event loop lie between the two: it went on to the end of the run once."""
    waiting = trigger(tasks, SLEEPS)
    annotate = ("annotate", "jobset", waiting.workload["metadata"]["name"], "some=news", "-n", tasks.runs.namespace)

    async def cancelled() -> None:
        running = asyncio.create_task(event_of(waiting))
        while not said:
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

    with capture_logs() as said:
        asyncio.run(cancelled())


def test_it_finds_out_anew_who_asks_when_that_is_refused(tasks: Tasks, connected: Connected) -> None:
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


def test_who_is_refused_again_is_told_so(tasks: Tasks, connected: Connected) -> None:
    bad = tasks.runs.directory / "refused.kubeconfig"
    bad.write_text(tasks.runs.kubeconfig.read_text().replace(tasks.token(), "refused"))
    waiting = trigger(tasks, SLEEPS)
    connected(bad)
    payload = asyncio.run(event_of(waiting))
    assert "refuses the credentials" in payload["error"]
    assert "refused.kubeconfig" not in payload["error"]


def test_a_run_that_is_gone_is_told_as_lost(tasks: Tasks) -> None:
    waiting = trigger(tasks, SLEEPS)
    workload = tasks.runs.backend().workload("run")
    assert workload is not None
    tasks.runs.backend().end(workload)
    assert until(lambda: not tasks.workloads(), 90)
    assert over(asyncio.run(event_of(waiting))).phase is Phase.LOST


def test_one_that_goes_on_for_another_shows_nothing_again_and_knows_what_was_printed_before(tasks: Tasks) -> None:
    first = trigger(tasks, SAYS_MUCH_AND_FAILS)
    with capture_logs() as said:
        told = asyncio.run(event_of(first))
    assert [each["event"] for each in said].count("[rank 0] line 99") == 1
    assert [each["event"] for each in said if each["event"].startswith("progress")] == ["progress: 50 %"]
    again = DistributedTrainTrigger(**{**first.serialize()[1], "position": told["position"]})
    with capture_logs() as repeated:
        found = asyncio.run(event_of(again))
    assert [each["event"] for each in repeated] == []
    assert found == told
    failure = over(found).failure
    assert failure
    assert "line 99" in failure.tail


def test_a_run_of_somebody_else_is_waited_for_before_it_is_there(tasks: Tasks) -> None:
    waiting = RunEndTrigger("run", namespace=tasks.runs.namespace, poll_interval=0.5)
    assert RunEndTrigger(**waiting.serialize()[1]).serialize() == waiting.serialize()

    async def later() -> Mapping[str, Any]:
        following = asyncio.create_task(event_of(waiting))
        await asyncio.sleep(2)
        request = tasks.runs.request("print('hello')", run="run")
        await asyncio.to_thread(tasks.runs.backend().make, request)
        return await following

    assert over(asyncio.run(later())).phase is Phase.SUCCEEDED


def test_runs_that_end_are_told_to_whoever_watches_an_asset_and_earlier_ones_are_not(
    tasks: Tasks, asked: list[str]
) -> None:
    backend = tasks.runs.backend()
    assert backend.start(tasks.runs.request("print(1)", run="earlier")).wait().phase is Phase.SUCCEEDED
    watching = JobSetFinishedEventTrigger(job="job", namespace=tasks.runs.namespace)
    again = JobSetFinishedEventTrigger(**json.loads(json.dumps(watching.serialize()[1])))
    assert again.shared_stream_key() == watching.shared_stream_key()

    async def first() -> Mapping[str, Any]:
        events = again.run()
        told = asyncio.ensure_future(anext(events))
        while not any(each.startswith("watch ") for each in asked):
            await asyncio.wait({told}, timeout=0.1)
        await asyncio.to_thread(backend.make, tasks.runs.request("raise SystemExit(1)", run="failing"))
        await asyncio.to_thread(backend.make, tasks.runs.request(WRITES, run="ours"))
        payload: Mapping[str, Any] = (await told).payload
        await events.aclose()
        return payload

    told = dict(asyncio.run(first()))
    assert told.pop("uid")
    namespace = tasks.runs.namespace
    expected = {"run": "ours", "job": "job", "namespace": namespace, "phase": "Succeeded", "result": 0.5}
    assert told == expected


def test_a_run_that_is_deleted_as_soon_as_its_keeper_knows_its_end_is_told_by_the_keeper_s_word(
    tasks: Tasks, asked: list[str]
) -> None:
    backend = tasks.runs.backend()

    def run_and_delete() -> None:
        backend.start(tasks.runs.request(WRITES, run="brief")).wait()
        workload = backend.workload("brief")
        assert workload is not None
        backend.end(workload)

    async def first() -> Mapping[str, Any]:
        events = JobSetFinishedEventTrigger(namespace=tasks.runs.namespace).run()
        told = asyncio.ensure_future(anext(events))
        while not any(each.startswith("watch ") for each in asked):
            await asyncio.wait({told}, timeout=0.1)
        await asyncio.to_thread(run_and_delete)
        payload: Mapping[str, Any] = (await told).payload
        await events.aclose()
        return payload

    told = asyncio.run(first())
    assert (told["run"], told["phase"], told["result"]) == ("brief", "Succeeded", 0.5)


def test_who_watches_an_asset_is_told_once_what_keeps_runs_from_being_seen_is_mended(
    tasks: Tasks, connected: Connected
) -> None:
    good, bad = tasks.runs.kubeconfig, tasks.runs.directory / "refused.kubeconfig"
    bad.write_text(good.read_text().replace(tasks.token(), "refused"))
    connected(bad)

    async def first() -> Mapping[str, Any]:
        events = JobSetFinishedEventTrigger(namespace=tasks.runs.namespace).run()
        told = asyncio.ensure_future(anext(events))
        with capture_logs() as said:
            while not any("until this is fixed" in each["event"] for each in said):
                await asyncio.wait({told}, timeout=0.1)
                assert not told.done()
            connected(good)
            while not any("are reported from now on" in each["event"] for each in said):
                await asyncio.wait({told}, timeout=0.1)
                assert not told.done()
        await asyncio.to_thread(tasks.runs.backend().make, tasks.runs.request(WRITES, run="ours"))
        payload: Mapping[str, Any] = (await told).payload
        await events.aclose()
        return payload

    assert asyncio.run(first())["run"] == "ours"
