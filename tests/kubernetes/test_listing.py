"""Lists of a run's objects that the server refuses, interrupts, or answers without a version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_all, read_run
from stepset.backends.kubernetes.watch.informer import Informer
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at

WORKLOAD: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "run", "uid": "u", "namespace": "ns", "resourceVersion": "1", "labels": {}},
    "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]},
}
NO_VERSION = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}


def listing(*items: dict[str, Any], **about: str) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7", **about}, "items": list(items)}


def answers(collection: str, answer: Callable[[dict[str, str]], tuple[int, Any]]) -> Answer:
    """Answers for a run of which only the workload exists; the lists of one collection are those of `answer`."""

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith(collection) and "watch" not in query:
            return answer(query)
        return 200, listing(WORKLOAD) if path.endswith("/jobsets") else listing()

    return respond


def read(answer: Answer) -> tuple[RunStatus, list[str]]:
    """Returns the state of the run, and the paths that were requested."""

    async def reading() -> tuple[RunStatus, list[str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with anyio.fail_after(60):
                status = await read_run(NamespacedClient(client, "ns"), WORKLOAD, 0.0)
            return status, [path for _, path, _ in server.requests]

    return asyncio.run(reading())


def refusal(status: int, message: str = "no") -> tuple[int, Any]:
    return status, {"kind": "Status", "code": status, "message": message}


def test_the_error_about_a_known_run_does_not_state_that_its_namespace_might_not_exist() -> None:
    message = 'jobs.batch is forbidden: User "x" cannot list resource "jobs" in API group "batch" in the namespace "ns"'
    refused = answers("/jobs", lambda _: refusal(403, message))
    expected = f"rbac: {message}; have an administrator run: "
    with pytest.raises(InfrastructureError) as caught:
        read(refused)
    assert expected in str(caught.value)

    async def followed() -> str:
        async with (
            ApiServer(refused) as server,
            Informer(NamespacedClient(client_at(server.port), "ns")) as informer,
            informer.follow(WORKLOAD) as run,
        ):
            with anyio.fail_after(60):
                while run.error is None:
                    await run.changed.wait()
                    run.changed.clear()
            return str(run.error)

    assert expected in asyncio.run(followed())


@pytest.mark.parametrize(("collection", "status"), [("/events", 403), ("/events", 404), ("/jobs", 404)])
def test_a_collection_that_is_optional_or_not_installed_may_be_refused(collection: str, status: int) -> None:
    assert read(answers(collection, lambda _: refusal(status)))[0].phase is Phase.PENDING


@pytest.mark.parametrize(
    ("collection", "status"), [("/events", 400), ("/events", 500), ("/events", 429), ("/jobs", 400), ("/jobs", 403)]
)
def test_every_other_refusal_is_an_error(collection: str, status: int) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot be listed: .* HTTP 4..: no|failed with HTTP"):
        read(answers(collection, lambda _: refusal(status, "no")))


def test_a_list_whose_pages_expire_is_started_again() -> None:
    replies = iter([(200, listing(**{"continue": "next"})), refusal(410), (200, listing())])
    status, paths = read(answers("/pods", lambda _: next(replies)))
    assert status.phase is Phase.PENDING
    assert sum(path.endswith("/pods") for path in paths) == 3


def test_a_list_without_a_version_is_an_error_after_few_attempts() -> None:
    requests = list[dict[str, str]]()

    def answer(query: dict[str, str]) -> tuple[int, Any]:
        requests.append(query)
        return 200, NO_VERSION

    with pytest.raises(InfrastructureError, match="pods cannot be listed: the list has no resourceVersion"):
        read(answers("/pods", answer))
    assert 1 < len(requests) < 10


def test_a_watch_whose_list_has_no_version_pauses_between_requests_and_is_reported() -> None:
    async def follow() -> tuple[str, int]:
        async with (
            ApiServer(answers("/pods", lambda _: (200, NO_VERSION))) as server,
            Informer(NamespacedClient(client_at(server.port), "ns")) as informer,
            informer.follow(WORKLOAD) as run,
        ):
            with anyio.fail_after(60):
                while not run.access_notes:
                    await run.changed.wait()
                    run.changed.clear()
            await asyncio.sleep(1)
            return run.access_notes[0], sum(path.endswith("/pods") for _, path, _ in server.requests)

    note, requests = asyncio.run(follow())
    assert "the list has no resourceVersion" in note
    assert requests < 10


@pytest.mark.parametrize("pods", [0, 1])
def test_a_list_of_runs_contains_why_pods_were_refused(pods: int) -> None:
    """Events are read only if a run lacks pods."""
    run = {**WORKLOAD, "metadata": {**WORKLOAD["metadata"], "labels": {"stepset.dev/run": "run"}}}
    controller = {"apiVersion": run["apiVersion"], "kind": "JobSet", "name": "run", "uid": "u", "controller": True}
    job = {
        "metadata": {
            "name": "run-node-0",
            "uid": "j",
            "namespace": "ns",
            "labels": {"jobset.sigs.k8s.io/jobset-name": "run", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
            "ownerReferences": [controller],
        },
        "spec": {"parallelism": 1},
    }
    pod = {
        "metadata": {
            "name": "run-node-0-0-abcde",
            "uid": "p",
            "namespace": "ns",
            "labels": {"stepset.dev/run": "run", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "ownerReferences": [
                {**controller, "apiVersion": "batch/v1", "kind": "Job", "name": "run-node-0", "uid": "j"}
            ],
        },
        "spec": {"containers": [{"name": "node"}]},
        "status": {"phase": "Pending"},
    }
    refused = {
        "metadata": {"name": "e", "uid": "e", "namespace": "ns"},
        "involvedObject": {"kind": "Job", "name": "run-node-0", "uid": "j", "namespace": "ns"},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": 'pods "run-node-0-0-" is forbidden: error looking up service account ns/x: not found',
        "firstTimestamp": "2026-11-21T03:00:00Z",
        "lastTimestamp": "2026-11-21T03:00:00Z",
    }
    found = {
        "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSetList", [run]),
        "jobs": ("batch/v1", "JobList", [job]),
        "pods": ("v1", "PodList", [pod] * pods),
        "events": ("v1", "EventList", [refused]),
    }

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        version, kind, items = found.get(path.rsplit("/", 1)[-1], ("v1", "List", []))
        return 200, {**listing(*items), "apiVersion": version, "kind": kind}

    async def reading() -> tuple[RunStatus, bool]:
        async with ApiServer(respond) as server, client_at(server.port) as client:
            ((_, status),) = await read_all(NamespacedClient(client, "ns"), 0.0, ("jobset",))
            return status, any(path.endswith("/events") for _, path, _ in server.requests)

    status, requested = asyncio.run(reading())
    assert requested is not bool(pods)
    assert ("service account ns/x" in status.trouble.message if status.trouble else False) is requested


def listed_runs(
    event: Callable[[dict[str, str]], tuple[int, Any]], **about: str
) -> tuple[list[RunStatus], list[tuple[str, dict[str, str]]]]:
    """Returns the states of runs of two kinds that lack pods, and the requests for events.

    Args:
        event: the reply to a request for events.
        about: further metadata of the runs.
    """
    meta = {**WORKLOAD["metadata"], **about, "labels": {"stepset.dev/run": "run"}}
    job_meta = {**meta, "name": "other", "uid": "o", "labels": {"stepset.dev/run": "other"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": job_meta, "spec": {"parallelism": 1}}
    found = {
        "/jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSetList", [{**WORKLOAD, "metadata": meta}]),
        "/jobs": ("batch/v1", "JobList", [job]),
    }

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/events"):
            return event(query)
        version, kind, items = found.get(path[path.rindex("/") :], ("v1", "List", []))
        return 200, {**listing(*items), "apiVersion": version, "kind": kind}

    async def reading() -> tuple[list[RunStatus], list[tuple[str, dict[str, str]]]]:
        async with ApiServer(respond) as server, client_at(server.port) as client:
            runs = await read_all(NamespacedClient(client, ""), 0.0, ("jobset", "job"))
            return [status for _, status in runs], [
                (path, query) for _, path, query in server.requests if path.endswith("/events")
            ]

    return asyncio.run(reading())


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_a_list_of_runs_does_not_need_the_events(status: int) -> None:
    """The runs of all kinds share the request, and all of them are in one namespace."""
    runs, requests = listed_runs(lambda _: refusal(status))
    assert sorted(run.name for run in runs) == ["other", "run"]
    assert {path for path, _ in requests} == {"/api/v1/namespaces/ns/events"}
    assert [query.get("continue") for _, query in requests].count(None) == len(requests)


def test_a_list_of_runs_reads_a_limited_number_of_events_once() -> None:
    runs, requests = listed_runs(lambda _: (200, listing(**{"continue": "next"})))
    assert (len(runs), len(requests)) == (2, 8)


def test_a_list_reads_no_events_for_runs_that_are_being_deleted() -> None:
    runs, requests = listed_runs(lambda _: (200, listing()), deletionTimestamp="2026-11-21T03:00:00Z")
    assert (len(runs), requests) == (2, [])


@pytest.mark.parametrize("queue", ["", "team"])
def test_a_list_of_runs_contains_why_a_run_waits_in_its_queue(queue: str) -> None:
    """The Workloads of Kueue are read only if a run waits in a queue."""
    labels = {"stepset.dev/run": "run", **({"kueue.x-k8s.io/queue-name": queue} if queue else {})}
    waiting = {"metadata": {**WORKLOAD["metadata"], "labels": labels}, "spec": {**WORKLOAD["spec"], "suspend": True}}
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no unused quota for cpu"}
    place = {
        "metadata": {
            "name": "w",
            "uid": "w",
            "labels": {"kueue.x-k8s.io/job-uid": "u"},
            "ownerReferences": [
                {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "run", "uid": "u"}
            ],
        },
        "spec": {"queueName": "team"},
        "status": {"conditions": [reserved]},
    }

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/workloads"):
            return 200, {**listing(place), "kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta1"}
        if path.endswith("/jobsets"):
            return 200, {**listing(waiting), "kind": "JobSetList", "apiVersion": "jobset.x-k8s.io/v1alpha2"}
        return 200, listing()

    async def reading() -> tuple[RunStatus, list[str]]:
        async with ApiServer(respond) as server, client_at(server.port) as client:
            ((_, status),) = await read_all(NamespacedClient(client, "ns"), 0.0, ("jobset",))
            return status, [path for _, path, _ in server.requests if path.endswith("/workloads")]

    status, requested = asyncio.run(reading())
    assert len(requested) == bool(queue)
    assert (status.waiting.message if status.waiting else None) == ("no unused quota for cpu" if queue else None)
