"""A submission deletes only abandoned submissions: never a run that has pods or is complete, whatever clocks state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.submit.abandoned import remove_half_submitted
from stepset.errors import BadInputError, InfrastructureError
from stepset.targets.metadata import RUN, SUBMISSION
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.submitting import submit
from tests.targets.making import request

CREATED = "2026-01-01T12:00:00Z"
AT_ONCE, LATER = "Thu, 01 Jan 2026 12:00:05 GMT", "Thu, 01 Jan 2026 12:20:00 GMT"
"""The server's time 5 seconds and 20 minutes after the creation. This machine's clock is ahead by much more."""
MOUNTED = {"volumes": [{"name": "agent", "configMap": {"name": "run-agent"}}]}


def half_submitted(**fields: Any) -> dict[str, Any]:
    """A JobSet whose submission has not removed its label."""
    labels = {RUN: "run", SUBMISSION: "started"}
    metadata = {"name": "run", "uid": "u", "creationTimestamp": CREATED, "labels": labels, **fields}
    job = {"name": "node", "template": {"spec": {"template": {"spec": dict(MOUNTED)}}}}
    version = "jobset.x-k8s.io/v1alpha2"
    return {"apiVersion": version, "kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": [job]}}


def pod(phase: str = "Pending", **state: Any) -> dict[str, Any]:
    """A pod whose only container is in a state; default: the kubelet waits for a ConfigMap to mount."""
    state = state or {"waiting": {"reason": "ContainerCreating"}}
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": [{"state": state}]}}


STARTED = (pod("Running", running={}), pod(running={}), pod(terminated={"exitCode": 1}), pod("Failed"))


def listing(pods: Sequence[Any]) -> dict[str, Any]:
    """A list of pods, each with a uid."""
    items = [{**each, "metadata": {**each["metadata"], "uid": f"p{index}"}} for index, each in enumerate(pods)]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def deleted(
    date: str,
    *,
    pods: Sequence[Any] | None = (),
    config_map: int = 404,
    workloads: list[Any] | None = None,
    target: str = "jobset",
    runtime: int = 200,
) -> tuple[list[str], list[str]]:
    """The runs that a submission removes, and the paths of its requests to delete; `pods` None: may not be listed."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/pods"):
            refusal = {"message": 'User "x" cannot list resource "pods" in API group ""'}
            return (403, refusal) if pods is None else (200, listing(pods))
        if "/configmaps/" in path:
            return config_map, {"message": "x", "details": {"name": "run-agent"}}
        if path.endswith("/trainingruntimes/run"):
            return runtime, {"message": "x", "details": {"name": "run"}, "spec": {"template": {"spec": MOUNTED}}}
        if path.endswith("/trainingruntimes"):
            return 200, {"items": []}
        return 200, {"items": [half_submitted()] if workloads is None else workloads}

    async def run() -> tuple[list[str], list[str]]:
        async with ApiServer(answer, date=date) as server, client_at(server.port) as client:
            removed = await remove_half_submitted(NamespacedClient(client, "ns"), target)
            return removed, [path for method, path, _ in server.requests if method == "DELETE"]

    return asyncio.run(run())


PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/run"


def test_an_abandoned_submission_is_deleted() -> None:
    assert deleted(LATER) == (["run"], [PATH])


def test_the_age_is_that_of_the_servers_clock() -> None:
    assert deleted(AT_ONCE) == ([], [])


def test_nothing_is_deleted_if_the_server_does_not_state_its_time() -> None:
    assert deleted("") == ([], [])
    assert deleted("yesterday") == ([], [])


@pytest.mark.parametrize("pods", [*([each] for each in STARTED), [pod(), STARTED[0]], None])
def test_a_run_of_which_a_pod_has_or_may_have_started_is_not_deleted(pods: Sequence[Any] | None) -> None:
    assert deleted(LATER, pods=pods) == ([], [])


@pytest.mark.parametrize("pods", [[pod()], [{"metadata": {}}], [{"metadata": {}, "status": {"phase": "Pending"}}] * 9])
def test_an_abandoned_submission_whose_pods_wait_for_a_config_map_is_deleted(pods: Sequence[Any]) -> None:
    """The controller creates the pods as soon as the workload exists; no process would ever create the ConfigMap."""
    assert deleted(LATER, pods=pods) == (["run"], [PATH])


def test_the_config_maps_of_a_trainjob_are_those_of_its_runtime() -> None:
    trainjob = {**half_submitted(), "kind": "TrainJob", "spec": {"runtimeRef": {"name": "run"}}}
    queued: dict[str, Any] = {"target": "trainjob", "workloads": [trainjob]}
    assert deleted(LATER, config_map=200, **queued) == ([], [])
    assert deleted(LATER, config_map=404, **queued)[0] == ["run"]
    assert deleted(LATER, config_map=404, pods=[pod()], **queued)[0] == ["run"]
    assert deleted(LATER, config_map=404, runtime=403, **queued) == ([], [])


def test_a_config_map_of_the_user_that_does_not_exist_yet_is_no_sign_of_an_interrupted_submission() -> None:
    own, users = MOUNTED["volumes"][0], {"name": "data", "configMap": {"name": "data"}}
    workload = half_submitted()
    workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] = {"volumes": [users]}
    assert deleted(LATER, workloads=[workload], pods=[pod()]) == ([], [])
    workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] = {"volumes": [users, own]}
    assert deleted(LATER, workloads=[workload], pods=[pod()]) == (["run"], [PATH])


def test_a_run_without_config_maps_is_not_deleted() -> None:
    """Without the agent and a script, nothing keeps its pods from starting; it has none while it is in a queue."""
    workload = half_submitted()
    del workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"]
    assert deleted(LATER, workloads=[workload]) == ([], [])


@pytest.mark.parametrize("status", [200, 403])
def test_a_run_whose_config_maps_exist_or_may_exist_is_not_deleted(status: int) -> None:
    """A process was ended, or refused, just before it removed the label: the run is complete, and may be queued."""
    assert deleted(LATER, config_map=status) == ([], [])


OTHERS = (
    half_submitted(labels={SUBMISSION: "started"}),
    half_submitted(ownerReferences=[{"controller": True, "kind": "TrainJob", "name": "x", "uid": "x"}]),
)


@pytest.mark.parametrize("other", OTHERS)
def test_an_object_that_is_not_a_run_is_not_deleted(other: dict[str, Any]) -> None:
    assert deleted(LATER, workloads=[other]) == ([], [])


ODD: tuple[Any, ...] = (
    *({}, {"metadata": None}, {"metadata": []}, 7, None, "x"),
    half_submitted(creationTimestamp=7),
    half_submitted(creationTimestamp="9" * 4301),
    half_submitted(labels=None),
    {**half_submitted(), "spec": {"volumes": 7}},
)


@pytest.mark.parametrize("odd", ODD)
def test_an_unparsable_object_neither_ends_the_submission_nor_hides_another(odd: Any) -> None:
    assert "run" in deleted(LATER, workloads=[odd, half_submitted()])[0]


def test_a_label_that_cannot_be_removed_is_reported_and_the_run_continues() -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "PATCH":
            return 403, {"message": "no"}
        created = half_submitted() if path.endswith("/jobsets") else {"metadata": {}}
        return 201, created

    async def run() -> tuple[tuple[str, ...], list[str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            made = await submit(NamespacedClient(client, "ns"), request(run="run"), "jobset")
            return made.warnings, [method for method, _, _ in server.requests]

    warnings, methods = asyncio.run(run())
    assert warnings == (f"the run keeps the label {SUBMISSION}, because it cannot be patched: no",)
    assert "DELETE" not in methods


def test_a_runtime_that_cannot_be_given_its_owner_is_reported_and_the_run_continues() -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "PATCH" and "trainingruntimes" in path:
            return 403, {"message": "no"}
        return 201, {**half_submitted(), "kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}

    async def run() -> tuple[tuple[str, ...], list[str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            made = await submit(NamespacedClient(client, "ns"), request(run="run"), "trainjob")
            return made.warnings, [method for method, _, _ in server.requests]

    warnings, methods = asyncio.run(run())
    assert warnings == ("TrainingRuntime run stays when the run is deleted, because it cannot be patched: no",)
    assert "DELETE" not in methods


@pytest.mark.parametrize("run", ["run", "another", None])
def test_a_runtime_that_exists_before_the_run_is_not_used(run: str | None) -> None:
    """Its template, which another account may have written, would replace that of the job."""
    runtimes: list[dict[str, Any]] = [{"metadata": {"name": "run", "uid": "other", "labels": run and {RUN: run}}}]

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/trainingruntimes"):
            if runtimes:
                return 409, {"kind": "Status", "reason": "AlreadyExists", "code": 409}
            runtimes.append({"metadata": {"name": "run", "uid": "own"}})
            return 201, runtimes[0]
        if "/trainingruntimes/" in path:
            return 200, runtimes.pop() if method == "DELETE" else runtimes[0]
        if method == "GET":
            return 404, {"kind": "Status", "code": 404}
        return 201, {**half_submitted(), "kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}

    async def submitted() -> list[str]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            try:
                await submit(NamespacedClient(client, "ns"), request(run="run"), "trainjob")
            except BadInputError as error:
                assert "TrainingRuntime run exists and does not belong to run run" in str(error)
            return [path for method, path, _ in server.requests if method == "POST" and path.endswith("/trainjobs")]

    trainjobs = asyncio.run(submitted())
    assert [each["metadata"]["uid"] for each in runtimes] == (["own"] if run == "run" else ["other"])
    assert len(trainjobs) == (run == "run")


def test_a_secret_that_exists_before_the_run_is_not_used_and_the_run_does_not_start() -> None:
    """Another account has created it under the name of the run's ssh keys, which it therefore knows."""
    exists = {"kind": "Status", "reason": "AlreadyExists", "message": "exists", "code": 409}

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/secrets"):
            return 409, exists
        return 201, half_submitted()

    async def run() -> list[tuple[str, str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            job = request(run="run", framework="mpi", num_nodes=2)
            with pytest.raises(Exception, match=r"^name: Secret \S+ exists, and the run would use its keys"):
                await submit(NamespacedClient(client, "ns"), job, "jobset")
            return [(method, path) for method, path, _ in server.requests]

    requests = asyncio.run(run())
    assert not [path for method, path in requests if "/secrets/" in path]
    assert ("DELETE", PATH) in requests


@pytest.mark.parametrize(
    ("owners", "requests"),
    [
        ([{"uid": "u"}], ["POST", "GET"]),
        ([{"uid": "earlier"}], ["POST", "GET", "DELETE", "POST"]),
        ([], ["POST", "GET"]),
    ],
    ids=["of another submission of the run", "of an earlier run of the name", "planted"],
)
def test_a_config_map_that_exists_before_the_first_submission(
    owners: list[dict[str, str]], requests: list[str]
) -> None:
    existing = {"name": "run-agent", "uid": "existing", "labels": {RUN: "run"}, "ownerReferences": owners}
    deleted = False

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        nonlocal deleted
        if "/configmaps" not in path:
            return 201, half_submitted()
        deleted = deleted or method == "DELETE"
        if method == "POST" and not deleted:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": "exists", "code": 409}
        return 200, {"kind": "ConfigMap", "metadata": existing if method != "POST" else {**existing, "uid": "own"}}

    async def run() -> list[str]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            job = request(run="run", framework="torch", num_nodes=2)
            refused = pytest.raises(BadInputError, match=r"^name: ConfigMap run-agent exists, and a pod")
            with nullcontext() if owners else refused:
                await submit(NamespacedClient(client, "ns"), job, "jobset")
            return [method for method, path, _ in server.requests if "/configmaps" in path]

    assert asyncio.run(run())[: len(requests)] == requests


def test_a_refusal_of_a_companion_deletes_only_what_this_submission_has_created() -> None:
    message = {"kind": "Status", "message": 'User "x" cannot create resource "configmaps" in API group ""'}

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/configmaps"):
            return 403, message
        if path.endswith("/jobsets"):
            return 409, {"reason": "AlreadyExists"}
        known = request(run="run", owner="me")
        labels = {RUN: "run", SUBMISSION: "started", "stepset.dev/owner-hash": "me"}
        notes = {"stepset.dev/spec-hash": known.spec_hash}
        return 200, half_submitted(labels=labels, annotations=notes)

    async def run() -> list[str]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with pytest.raises(InfrastructureError):
                await submit(NamespacedClient(client, "ns"), request(run="run", owner="me"), "jobset")
            return [method for method, _, _ in server.requests]

    assert "DELETE" not in asyncio.run(run())


@pytest.mark.parametrize(("config_map", "replaced"), [("u", False), ("other", True), (None, True)])
def test_the_keys_of_a_run_whose_pods_may_have_started_are_kept(config_map: str | None, replaced: bool) -> None:
    """A ConfigMap that the run owns is created after the Secret, so an earlier submission has created the Secret."""
    job = request(run="run", owner="me", framework="mpi", num_nodes=2)

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "POST" and path.endswith(("/jobsets", "/secrets", "/configmaps")) and path not in gone:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "code": 409}
        if method == "DELETE":
            gone.add(path.rpartition("/")[0])
            return 200, {}
        if "/configmaps/" in path:
            owners = [{"uid": config_map}]
            about = {"name": "x", "uid": "c", "labels": {RUN: "run"}, "ownerReferences": owners}
            return (200, {"metadata": about}) if config_map else (404, {"details": {"name": "x"}})
        labels = {RUN: "run", SUBMISSION: "started", "stepset.dev/owner-hash": "me"}
        return 200, half_submitted(labels=labels, annotations={"stepset.dev/spec-hash": job.spec_hash})

    gone: set[str] = set() if config_map else {"/api/v1/namespaces/ns/configmaps"}

    async def run() -> list[tuple[str, str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            made = await submit(NamespacedClient(client, "ns"), job, "jobset")
            assert made.adopted
            return [(method, path) for method, path, _ in server.requests]

    requests = asyncio.run(run())
    secret = "/api/v1/namespaces/ns/secrets/run-mpi-ssh-auth"
    assert (("DELETE", secret) in requests) is replaced
    created = [path.rpartition("/")[2] for method, path in requests if method == "POST"]
    assert created.index("secrets") < created.index("configmaps"), "no pod starts before its keys exist"


@pytest.mark.parametrize("adopted", [False, True])
def test_the_workload_becomes_the_owner_of_its_own_runtime_only(adopted: bool) -> None:
    """Another account may replace the runtime at any time; the uid in the patch is a precondition."""
    job = request(run="run", owner="me")
    exists = {"kind": "Status", "reason": "AlreadyExists", "code": 409}
    bodies: list[Any] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        labels = {RUN: "run", SUBMISSION: "started", "stepset.dev/owner-hash": "me"}
        about = {"name": "run", "uid": "own", "labels": labels}
        if "/trainingruntimes" in path:
            return (409, exists) if adopted and method == "POST" else (201, {"metadata": about})
        if adopted and path.endswith("/trainjobs"):
            return 409, exists
        found = half_submitted(labels=labels, annotations={"stepset.dev/spec-hash": job.spec_hash})
        return 201, {**found, "kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}

    async def run() -> None:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            assert (await submit(NamespacedClient(client, "ns"), job, "trainjob")).adopted is adopted
            bodies.extend(server.bodies)

    asyncio.run(run())
    (patched,) = [body for method, path, body in bodies if method == "PATCH" and "/trainingruntimes/" in path]
    assert patched["metadata"]["uid"] == "own"


def test_a_runtime_of_another_account_is_not_given_to_the_run() -> None:
    """It was created after an interrupted submission had lost its own; the run's deletion would delete it."""
    job, patched = request(run="run", owner="me"), list[str]()

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "PATCH":
            patched.append(path)
        if method == "POST" and path.endswith(("/trainingruntimes", "/trainjobs")):
            return 409, {"kind": "Status", "reason": "AlreadyExists", "code": 409}
        if "/trainingruntimes/" in path:
            return 200, {"metadata": {"name": "run", "uid": "foreign"}}
        labels = {RUN: "run", SUBMISSION: "started", "stepset.dev/owner-hash": "me"}
        found = half_submitted(labels=labels, annotations={"stepset.dev/spec-hash": job.spec_hash})
        return 200, {**found, "kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}

    async def run() -> None:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with pytest.raises(
                BadInputError, match=r"^name: TrainingRuntime run exists and does not belong to run run;"
            ):
                await submit(NamespacedClient(client, "ns"), job, "trainjob")

    asyncio.run(run())
    assert not patched
