"""Informers, reads and verdicts with unusual responses of the server: idle watches, refusals, missing runs."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import EventLoop, connect
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.find import read_run
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.kubernetes.watch.informer import FollowedRun, Informer
from stepset.backends.kubernetes.watch.liveness import Probe, ServerLiveness
from stepset.backends.kubernetes.watch.selectors import of_namespace
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import RUN
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.list_watch import Change
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at, kubeconfig

WORKLOAD = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "run", "uid": "u", "namespace": "ns", "resourceVersion": "1", "labels": {}},
    "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]},
}


def listing(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": list(items)}


def workload_only(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
    """Answers for a run of which only the workload exists."""
    return 200, listing(WORKLOAD) if path.endswith("/jobsets") else WORKLOAD if path.endswith("/run") else listing()


def nothing(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
    return 200, listing()


def namespaced(server: ApiServer) -> NamespacedClient:
    return NamespacedClient(client_at(server.port), "ns")


def test_idle_watches_that_end_are_opened_again_and_do_not_count_as_silence() -> None:
    async def silence() -> float:
        async with (
            ApiServer(workload_only, watch=0.2) as server,
            Informer(namespaced(server)) as informer,
            informer.follow(WORKLOAD) as run,
        ):
            most = 0.0
            for _ in range(160):
                await asyncio.sleep(0.1)
                most = max(most, run.silent_for())
            assert run.complete and run.error is None
            assert len([query for _, _, query in server.requests if "watch" in query]) > 4 * 3
        return most

    assert asyncio.run(silence()) < 5


EXPIRED = {"kind": "Status", "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410}


@pytest.mark.parametrize("response", [(410, EXPIRED), (200, [{"type": "ERROR", "object": EXPIRED}])])
def test_a_server_that_does_not_have_the_version_of_a_watch_is_not_silent_while_the_list_takes_long(
    response: tuple[int, Any],
) -> None:
    lists: list[str] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if query.get("watch"):
            return response if path.endswith("/pods") else workload_only(method, path, query)
        if path.endswith("/pods"):
            lists.append(path)
            if len(lists) > 1:
                return 200, None
        return workload_only(method, path, query)

    async def silence() -> float:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server)) as informer,
            informer.follow(WORKLOAD) as run,
        ):
            with anyio.fail_after(60):
                while len(lists) < 2:
                    await asyncio.sleep(0.01)
            return run.silent_for()

    assert asyncio.run(silence()) == 0


def test_a_refused_collection_is_followed_once_it_is_allowed() -> None:
    refusal = {"kind": "Status", "message": 'x cannot list resource "pods" in API group ""', "code": 403}
    allowed = threading.Event()

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return nothing(method, path, query) if allowed.is_set() else (403, refusal)

    async def absences() -> tuple[str, bool, str]:
        async with ApiServer(answer) as server, Informer(namespaced(server), of_namespace) as informer:
            async with informer.follow(WORKLOAD) as first:
                with anyio.fail_after(60):
                    while first.error is None:
                        await first.changed.wait()
                        first.changed.clear()
                message = str(first.error)
            allowed.set()
            async with informer.follow(WORKLOAD) as second:
                with anyio.fail_after(60):
                    while not second.objects.absence:
                        await second.changed.wait()
                        second.changed.clear()
                return message, second.complete, second.objects.absence

    message, complete, absence = asyncio.run(absences())
    assert message.startswith("rbac: ")
    assert (complete, absence) == (True, "missing")


def labelled(uid: str, **fields: Any) -> dict[str, Any]:
    """The run's workload, with its label."""
    metadata = {**WORKLOAD["metadata"], "uid": uid, "labels": {RUN: "run"}}  # type: ignore[dict-item]
    return {"apiVersion": WORKLOAD["apiVersion"], "kind": "JobSet", "metadata": metadata, **fields}


def owned_object(kind: str, uid: str, owner: str, name: str = "", **labels: str) -> dict[str, Any]:
    """A Job or a pod of a run."""
    owners = [{"kind": "JobSet" if kind == "Job" else "Job", "uid": owner, "name": owner, "controller": True}]
    metadata = {"name": name or uid, "uid": uid, "resourceVersion": "1", "labels": labels, "ownerReferences": owners}
    version = "batch/v1" if kind == "Job" else "v1"
    return {"kind": kind, "apiVersion": version, "metadata": metadata, "spec": {"containers": [{"name": "node"}]}}


async def complete(run: FollowedRun) -> None:
    with anyio.fail_after(60):
        while not run.complete:
            await run.changed.wait()
            run.changed.clear()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("refusals", [0, 2])
def test_two_runs_of_one_name_are_not_confused(newest_first: bool, refusals: int) -> None:
    """The runs of a task and of its retry, which have the same name, may be followed at the same time."""
    newest, earlier = labelled("u", spec={"replicatedJobs": [{"name": "node"}]}), labelled("earlier")
    of_run = {RUN: "run", "jobset.sigs.k8s.io/jobset-name": "run"}
    attempt, owner = "jobset.sigs.k8s.io/restart-attempt", "jobset.sigs.k8s.io/jobset-uid"
    index = "batch.kubernetes.io/job-completion-index"
    objects = {
        "/jobsets": [newest],
        "/jobs": [owned_object("Job", f"job of {uid}", uid, "run-node-0", **of_run) for uid in ("u", "earlier")],
        "/pods": [
            owned_object("Pod", "pod of earlier", "job of earlier", **of_run, **{attempt: "2", owner: "earlier"}),
            owned_object("Pod", "unreadable", "job of u", **of_run, **{owner: "u", index: "9" * 5000}),
            owned_object("Pod", "pod of u", "job of u", **of_run, **{attempt: "0", owner: "u"}),
        ],
    }
    refused = iter([403] * refusals)

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/run"):
            return next(refused, 200), newest
        return 200, listing(*next((found for end, found in objects.items() if path.endswith(end)), []))

    async def seen() -> dict[str, tuple[str, bool, int, list[str], list[str]]]:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server), of_namespace) as informer,
            informer.follow(newest if newest_first else earlier) as first,
        ):
            await complete(first)
            first.take_pods()
            async with informer.follow(earlier if newest_first else newest) as second:
                pods = {run.uid: [pod.name for pod in run.take_pods()] for run in (second,)}
                return {
                    run.uid: (
                        run.objects.absence,
                        run.objects.workload is not None,
                        run.objects.attempt,
                        [pod.name for pod in run.objects.pods],
                        pods.get(run.uid, []),
                    )
                    for run in (first, second)
                }

    found = asyncio.run(seen())
    assert found["earlier"][:2] == ("missing", False)
    assert found["u"][:2] == ("", True)
    if not newest_first:
        assert found["u"][2:] == (0, ["pod of u"], ["pod of u"])


@pytest.mark.parametrize(("exists", "absence"), [(False, "missing"), (True, "")])
def test_a_workload_that_no_list_and_no_watch_has_shown_is_read_after_the_watch_has_expired(
    exists: bool, absence: str
) -> None:
    """The run is created after the first list; its watch ends with 410 (Gone) before it reports the run."""
    about = {**WORKLOAD["metadata"], "name": "late", "uid": "late"}
    late, gone, expired = {**WORKLOAD, "metadata": about}, threading.Event(), threading.Event()

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/jobsets/late"):
            return (404, {"kind": "Status", "code": 404}) if gone.is_set() and not exists else (200, late)
        if path.endswith("/jobsets") and gone.is_set() and query.get("resourceVersion") and not expired.is_set():
            expired.set()
            return 410, {"kind": "Status", "code": 410}
        return workload_only(method, path, query)

    async def after_the_gap() -> str:
        async with (
            ApiServer(answer, watch=0.5) as server,
            Informer(namespaced(server), of_namespace) as informer,
            informer.follow(WORKLOAD) as other,
        ):
            with anyio.fail_after(60):
                while not other.complete:
                    await asyncio.sleep(0.05)
            async with informer.follow(late) as run:
                gone.set()
                with anyio.fail_after(60):
                    while reads_of_late(server) < 2 or not run.complete:
                        await asyncio.sleep(0.05)
                return run.objects.absence

    def reads_of_late(server: ApiServer) -> int:
        return sum(path.endswith("/jobsets/late") for _, path, _ in server.requests)

    assert asyncio.run(after_the_gap()) == absence


def test_the_ends_of_all_pods_of_an_earlier_attempt_are_reported_to_their_log_readers() -> None:
    """A reader that does not receive the end of its pod requests the log until the run is over."""
    attempt, index = "jobset.sigs.k8s.io/restart-attempt", "batch.kubernetes.io/job-completion-index"
    size = 40
    replicated = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": size}}}
    labels = {RUN: "run", "jobset.sigs.k8s.io/replicatedjob-name": "node", attempt: "0"}
    pods = [owned_object("Pod", f"pod-{n}", "job", **labels, **{index: str(n)}) for n in range(size)]

    async def reported() -> tuple[list[str], list[str]]:
        run = FollowedRun(Informer(NamespacedClient(client_at(1), "ns")), WORKLOAD, [], RunObjects("run", "u"))

        def see(verb: Literal["ADDED", "MODIFIED", "DELETED"], *objects: dict[str, Any]) -> None:
            for each in objects:
                run.objects.see(change := Change(verb, each))
                if each["kind"] == "Pod":
                    run.pods[each["metadata"]["uid"]] = change

        see("ADDED", labelled("u", spec={"replicatedJobs": [replicated]}))
        see("ADDED", owned_object("Job", "job", "u", "run-node-0", **labels), *pods)
        found = [pod.uid for pod in run.take_pods()]
        see("MODIFIED", labelled("u", spec={"replicatedJobs": [replicated]}, status={"restarts": 1}))
        see("DELETED", *pods)
        return found, [pod.uid for pod in run.take_pods() if pod.deleted]

    found, deleted = asyncio.run(reported())
    assert len(found) == size and deleted == found


def test_a_follower_receives_deletions_of_pods_and_later_followers_only_pods_that_exist() -> None:
    """A run that restarts often leaves many deleted pods, which must not occupy memory until its end."""
    index = "batch.kubernetes.io/job-completion-index"
    job = owned_object("Job", "job", "u", "run-node-0", **{RUN: "run"})
    pods = [owned_object("Pod", f"pod-{n}", "job", **{RUN: "run", index: str(n)}) for n in range(2)]
    own = labelled("u", spec={"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 2}}}]})

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        found = {"jobsets": [own], "jobs": [job], "pods": pods}.get(path.rpartition("/")[2], [])
        return 200, own if path.endswith("/run") else listing(*found)

    async def reported() -> tuple[list[tuple[str, bool]], list[str]]:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server), of_namespace) as informer,
            informer.follow(own) as first,
        ):
            await complete(first)
            assert len(first.take_pods()) == 2
            key = next(key for key in informer.reflectors if key[0].endswith("/pods"))
            informer._see(key, [Change("DELETED", pods[0])], False)
            deleted = [(pod.uid, pod.deleted) for pod in first.take_pods()]
            async with informer.follow(own) as second:
                await complete(second)
                return deleted, [pod.uid for pod in second.take_pods()]

    assert asyncio.run(reported()) == ([("pod-0", True)], ["pod-1"])


def test_a_follower_receives_the_pods_of_a_run_whose_workload_was_deleted_before_any_list() -> None:
    job = owned_object("Job", "job", "u", "run-node-0", **{RUN: "run"})
    pod = owned_object("Pod", "pod", "job", **{RUN: "run", "batch.kubernetes.io/job-completion-index": "0"})
    own = labelled("u", spec={"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 1}}}]})

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/run"):
            return 404, {"kind": "Status", "code": 404}
        return 200, listing(*{"jobs": [job], "pods": [pod]}.get(path.rpartition("/")[2], []))

    async def reported() -> tuple[str, list[str]]:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server)) as informer,
            informer.follow(own) as run,
        ):
            await complete(run)
            return run.objects.absence, [pod.uid for pod in run.take_pods()]

    assert asyncio.run(reported()) == ("missing", ["pod"])


def test_a_run_that_is_deleted_when_its_objects_are_read_is_lost_and_has_its_name() -> None:
    async def read() -> RunStatus:
        async with ApiServer(nothing) as server, client_at(server.port) as client:
            return await read_run(NamespacedClient(client, "ns"), WORKLOAD, 0.0)

    status = asyncio.run(read())
    assert (status.name, status.phase) == ("run", Phase.LOST)


def test_another_run_of_the_same_name_is_not_read_as_the_run() -> None:
    namesake = {**WORKLOAD, "metadata": {**WORKLOAD["metadata"], "uid": "another"}}  # type: ignore[dict-item]

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return 200, listing(namesake) if path.endswith("/jobsets") else listing()

    async def read() -> RunStatus:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            return await read_run(NamespacedClient(client, "ns"), WORKLOAD, 0.0)

    assert asyncio.run(read()).phase is Phase.LOST


@pytest.mark.parametrize(("status", "raises"), [(200, False), (404, False), (409, False), (403, True), (422, True)])
def test_a_refused_verdict_is_an_error_and_a_deleted_run_is_not(status: int, raises: bool) -> None:
    async def write() -> bool:
        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            return status, {"kind": "Status", "message": "no"}

        async with ApiServer(answer) as server, client_at(server.port) as client:
            return await write_verdict(NamespacedClient(client, "ns"), WORKLOAD, RunStatus("run", "run", "kubernetes"))

    if raises:
        with pytest.raises(InfrastructureError, match="JobSet run cannot be given its verdict: no"):
            asyncio.run(write())
    else:
        assert asyncio.run(write()) is (status == 200)


@pytest.mark.parametrize("status", [200, 403, 404, 409, 413, 422, 500])
def test_a_stateful_set_is_scaled_to_zero_whatever_the_answer_to_the_verdict(status: int) -> None:
    async def write() -> list[str]:
        answers = [status, 200]

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            return answers.pop(0), {"kind": "Status", "message": "no"}

        workload = {**WORKLOAD, "kind": "StatefulSet", "apiVersion": "apps/v1"}
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with suppress(InfrastructureError):
                await write_verdict(NamespacedClient(client, "ns"), workload, RunStatus("run", "run", "kubernetes"))
            return [method for method, _, _ in server.requests]

    assert asyncio.run(write()) == ["PATCH", "PATCH"]


def test_a_connection_can_be_used_after_a_call_was_interrupted(tmp_path: Path) -> None:
    """The client closes its connections although a call was cancelled."""
    running, stop = threading.Event(), threading.Event()
    ports: list[int] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return workload_only(method, path, query)

    def serve() -> None:
        async def until_stopped() -> None:
            async with ApiServer(answer) as server:
                ports.append(server.port)
                running.set()
                await asyncio.to_thread(stop.wait)

        asyncio.run(until_stopped())

    serving = threading.Thread(target=serve)
    serving.start()
    assert running.wait(30)
    try:
        connection = connect(kubeconfig(tmp_path, ports[0]))
        backend = KubernetesBackend(connection, namespace="ns", target="jobset")

        async def follow() -> None:
            async with connection.client, backend._runs.following(WORKLOAD, read_only=True) as follower:
                await follower.follow()

        with EventLoop() as portal:
            for milliseconds in range(60):
                call = portal.start_task_soon(follow)
                time.sleep(milliseconds / 1000)
                call.cancel()
                wait([call])
                assert connection.client._users == 0
            assert connection.get("/version").accepted
    finally:
        stop.set()
        serving.join(30)


@pytest.mark.parametrize(("received", "silent"), [(6.0, False), (4.0, True)], ids=["events since", "nothing since"])
def test_a_server_that_sends_events_is_not_silent_although_it_does_not_answer_a_request(
    received: float, silent: bool
) -> None:
    async def since() -> float | None:
        async with client_at(1) as client:  # nothing listens there: the request fails
            liveness = ServerLiveness(client, lambda: received, lambda: None, lambda: None)
            await liveness.check(Probe("/api/v1/pods", "u", lambda: ""), requested=5.0)
            return liveness.silent_since

    assert asyncio.run(since()) == (received if silent else None)
