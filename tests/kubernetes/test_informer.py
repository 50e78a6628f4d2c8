"""Informers, reads and verdicts with unusual responses of the server: idle watches, refusals, missing runs."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.connection import connect
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import EventLoop
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.find import read_run
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.kubernetes.watch.informer import FollowedRun, Informer, namespace_informer
from stepset.errors import InfrastructureError
from stepset.targets.metadata import RUN
from stepset.watch.state import Phase, RunStatus
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


def test_a_refused_collection_is_followed_once_it_is_allowed() -> None:
    refusal = {"kind": "Status", "message": 'x cannot list resource "pods" in API group ""', "code": 403}
    allowed = threading.Event()

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return nothing(method, path, query) if allowed.is_set() else (403, refusal)

    async def fates() -> tuple[str, bool, str]:
        async with ApiServer(answer) as server, namespace_informer(namespaced(server)) as informer:
            async with informer.follow(WORKLOAD) as first:
                with anyio.fail_after(60):
                    while first.error is None:
                        await first.changed.wait()
                        first.changed.clear()
                message = str(first.error)
            allowed.set()
            async with informer.follow(WORKLOAD) as second:
                with anyio.fail_after(60):
                    while not second.objects.fate:
                        await second.changed.wait()
                        second.changed.clear()
                return message, second.complete, second.objects.fate

    message, complete, fate = asyncio.run(fates())
    assert message.startswith("rbac: ")
    assert (complete, fate) == (True, "missing")


def labelled(uid: str, **fields: Any) -> dict[str, Any]:
    """The run's workload, with its label."""
    metadata = {**WORKLOAD["metadata"], "uid": uid, "labels": {RUN: "run"}}  # type: ignore[dict-item]
    return {"apiVersion": WORKLOAD["apiVersion"], "kind": "JobSet", "metadata": metadata, **fields}


def owned_object(kind: str, uid: str, owner: str, **labels: str) -> dict[str, Any]:
    """A Job or a pod of a run."""
    owners = [{"kind": "JobSet" if kind == "Job" else "Job", "uid": owner, "name": owner, "controller": True}]
    metadata = {"name": uid, "uid": uid, "resourceVersion": "1", "labels": labels, "ownerReferences": owners}
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [{"name": "node"}]}}


async def complete(run: FollowedRun) -> None:
    with anyio.fail_after(60):
        while not run.complete:
            await run.changed.wait()
            run.changed.clear()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("refusals", [0, 2])
def test_two_runs_of_one_name_are_not_confused(newest_first: bool, refusals: int) -> None:
    """The runs of a task and of its retry, which have the same name, may be followed at the same time."""
    newest, earlier = labelled("u", spec=WORKLOAD["spec"]), labelled("earlier")
    of_run = {RUN: "run", "jobset.sigs.k8s.io/jobset-name": "run"}
    attempt, owner = "jobset.sigs.k8s.io/restart-attempt", "jobset.sigs.k8s.io/jobset-uid"
    index = "batch.kubernetes.io/job-completion-index"
    objects = {
        "/jobsets": [newest],
        "/jobs": [owned_object("Job", f"job of {uid}", uid, **of_run) for uid in ("u", "earlier")],
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
            namespace_informer(namespaced(server)) as informer,
            informer.follow(newest if newest_first else earlier) as first,
        ):
            await complete(first)
            first.take_pods()
            async with informer.follow(earlier if newest_first else newest) as second:
                pods = {run.uid: [pod.name for pod in run.take_pods()] for run in (second,)}
                return {
                    run.uid: (
                        run.objects.fate,
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
