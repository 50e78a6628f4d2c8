"""Suspended runs for which Kueue has created no Workload: which requests are sent, and what the responses mean."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stepset.backends.kubernetes.api.lookup import Lookup, look_up
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import PRIORITY_CLASSES
from stepset.backends.kubernetes.watch import unqueued
from stepset.backends.kubernetes.watch.unqueued import UnqueuedRuns
from stepset.targets.pod_templates import priority_classes
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.list_watch import Change
from tests.fuzzing import FUZZED
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.test_queue_positions import FORBIDDEN, NO_SUCH_API, jobset, listing

_KEYS = st.sampled_from(
    ["kind", "spec", "template", "replicatedJobs", "tasks", "priorityClassName", "Pod", "TrainingRuntime", "JobSet"]
)
_OBJECTS = st.dictionaries(
    _KEYS,
    st.recursive(
        st.none() | st.booleans() | st.integers() | _KEYS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
        max_leaves=20,
    ),
)


def suspended(name: str = "one", priority: str = "") -> RunObjects:
    """A run that has been suspended for a long time without a Workload.

    Args:
        priority: the name of its WorkloadPriorityClass.
    """
    run, found = RunObjects(name, f"uid-{name}"), jobset(name)
    found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    run.see(Change("ADDED", found))
    return run


def checked(answer: Answer, *runs: RunObjects, passes: int = 1, interval: float = 0.0) -> list[str]:
    """Checks the runs, and returns the paths of the requests."""

    async def check() -> list[str]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            found = UnqueuedRuns(NamespacedClient(client, "ns"), interval=interval)
            for _ in range(passes):
                await found.read(runs)
            return [path for _, path, _ in server.requests]

    return asyncio.run(check())


def serving(objects: Mapping[str, Any]) -> Answer:
    """Answers with the objects by the last part of their path, and with empty lists."""
    return lambda method, path, query: (200, objects.get(path.rsplit("/", 1)[-1], listing()))


@given(_OBJECTS)
@FUZZED
def test_every_object_has_readable_priority_classes(found: dict[str, Any]) -> None:
    assert all(isinstance(name, str) and name for name in priority_classes(found))


def test_a_run_whose_workload_has_no_pod_templates_is_checked() -> None:
    run = suspended()

    checked(serving({"one": {"kind": "JobSet", "spec": {"suspend": True}}}), run)

    assert run.unqueued is not None and run.unqueued.confirmed


def test_an_unexpected_error_is_logged_once_and_does_not_end_the_checks(caplog: pytest.LogCaptureFixture) -> None:
    odd, one = suspended("odd"), suspended("one")
    assert odd.workload is not None
    odd._workloads.whole = structs.replace(odd.workload, target="Unknown")

    with caplog.at_level(logging.WARNING):
        checked(serving({}), odd, one, passes=2)

    assert odd.unqueued is None and one.unqueued is not None
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["the Workload of run odd cannot be checked: KeyError('Unknown')"]


@pytest.mark.parametrize(
    ("existing", "remedy"),
    [
        ((), "none exists; create it"),
        (("system-node-critical",), "create it, or use another one"),
        (("system-node-critical", "high"), "use one that exists: high"),
    ],
)
def test_the_priority_classes_of_the_system_exist_but_are_not_recommended(
    existing: tuple[str, ...], remedy: str
) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        missing = {"kind": "Status", "reason": "NotFound", "details": {"name": "nope"}}
        if path.endswith("/nope"):
            return 404, missing
        return 200, listing(*({"metadata": {"name": name}} for name in existing))

    async def found() -> Lookup:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            return await look_up(client, PRIORITY_CLASSES, "", "nope")

    assert asyncio.run(found()).remedy == remedy


WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/ns/workloads"


def serving_workloads(served: Mapping[str, tuple[int, Any]]) -> Answer:
    """Answers requests for Kueue's API by the start of their path. The status of other paths of Kueue is 404."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        found = [reply for start, reply in served.items() if path.startswith(start)]
        if found or not path.startswith("/apis/kueue.x-k8s.io"):
            return found[0] if found else (200, listing())
        return 404, NO_SUCH_API

    return answer


@pytest.mark.parametrize(
    ("served", "confirmed"),
    [
        ({"/apis/kueue.x-k8s.io": (200, listing())}, True),
        ({}, True),  # Kueue is not installed
        ({WORKLOADS: (403, FORBIDDEN), "/apis/kueue.x-k8s.io/v1beta1": (200, {})}, False),
        ({WORKLOADS: (404, NO_SUCH_API), "/apis/kueue.x-k8s.io/v1beta1": (200, {})}, False),
        ({WORKLOADS: (400, {}), "/apis/kueue.x-k8s.io/v1beta1": (200, {})}, False),
    ],
    ids=["empty list", "no Kueue", "403", "404", "400"],
)
def test_a_missing_workload_is_confirmed_only_by_the_server(
    served: dict[str, tuple[int, Any]], confirmed: bool
) -> None:
    run = suspended()

    checked(serving_workloads(served), run)

    assert run.unqueued is not None and run.unqueued.confirmed is confirmed


def test_a_workload_is_found_if_only_the_newer_version_is_served() -> None:
    run = suspended()

    checked(serving_workloads({"/apis/kueue.x-k8s.io/v1beta2": (200, listing({"kind": "Workload"}))}), run)

    assert run.unqueued is None


def test_an_unknown_version_of_kueue_confirms_nothing() -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        known = "/v1beta" in path and "kueue.x-k8s.io" in path
        return (404, NO_SUCH_API) if known else (200, listing())

    run = suspended()

    checked(answer, run)

    assert run.unqueued is not None and not run.unqueued.confirmed


def test_a_run_is_not_checked_again_for_minutes_if_its_workloads_cannot_be_read() -> None:
    answer = serving_workloads({WORKLOADS: (403, FORBIDDEN), "/apis/kueue.x-k8s.io/v1beta1": (200, {})})

    assert checked(answer, suspended(), passes=3).count(WORKLOADS) == 1
    assert len(checked(serving({}), suspended(), passes=3)) % 3 == 0, "a confirmed run is checked in each pass"


def test_a_class_and_the_version_of_kueue_are_read_once_for_all_runs() -> None:
    runs = [suspended(name, priority="high") for name in ("one", "two", "three")]

    requests = checked(serving({}), *runs)

    assert len([path for path in requests if path.endswith("/workloadpriorityclasses/high")]) == 1
    assert len([path for path in requests if path.endswith("/workloads")]) == 3
    assert len(requests) == 3 + 1 + 2, "and one request for the version of each of the two resources"


REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
JANE = (201, {"status": {"userInfo": {"username": "jane"}}})


def without_classes(review: tuple[int, Any] = JANE, workloads: tuple[int, Any] = (200, listing())) -> Answer:
    """Refuses to return the class `high`."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        found = {"selfsubjectreviews": review, "workloads": workloads, "high": (403, FORBIDDEN)}
        return found.get(path.rsplit("/", 1)[-1], (200, listing()))

    return answer


def test_a_class_that_the_account_may_not_read_has_the_command_that_grants_it() -> None:
    run, other = suspended(priority="high"), suspended("two", priority="high")

    requests = checked(without_classes(), run, other, passes=3)

    assert requests.count(REVIEWS) == 1
    assert other.unqueued == run.unqueued
    assert run.unqueued is not None and run.unqueued.unread == ("WorkloadPriorityClass high",)
    assert run.unqueued.grant == (
        "stepset rbac --namespace ns --target jobset --gang kueue --with priorities --user jane | kubectl apply -f -"
    )


def test_the_account_is_read_only_if_the_command_is_shown() -> None:
    run = suspended(priority="high")

    requests = checked(without_classes(workloads=(403, FORBIDDEN)), run)

    assert run.unqueued is not None and (run.unqueued.confirmed, run.unqueued.grant) == (False, "")
    assert REVIEWS not in requests


@pytest.mark.parametrize("review", [(201, b"not JSON"), (201, None)], ids=["invalid", "none"])
def test_the_class_is_known_although_the_server_does_not_state_the_account(
    monkeypatch: pytest.MonkeyPatch, review: tuple[int, Any]
) -> None:
    monkeypatch.setattr(unqueued, "CHECK_TIMEOUT", 1.0)
    run = suspended(priority="high")

    checked(without_classes(review), run)

    assert run.unqueued is not None
    assert (run.unqueued.unread, run.unqueued.grant) == (("WorkloadPriorityClass high",), "")


def test_the_checks_of_other_runs_continue_if_the_server_sends_no_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unqueued, "CHECK_TIMEOUT", 0.5)

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        return 200, None if query.get("labelSelector", "").endswith("uid-odd") else listing()

    odd, one = suspended("odd"), suspended("one")
    checked(answer, odd, one)

    assert odd.unqueued is None and one.unqueued is not None
