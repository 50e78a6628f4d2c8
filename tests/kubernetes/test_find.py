"""Which run a name selects, and the requests that look for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import find
from stepset.errors import RunNotFoundError
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at

RUNS = {
    "digits-1": {"stepset.dev/job": "digits"},
    "fit-1": {"stepset.dev/job": "train", "dag_id": "nightly", "task_id": "sweep.fit"},
    "fit-2": {"stepset.dev/job": "train", "dag_id": "nightly", "task_id": "sweep.fit"},
}


def jobset(name: str) -> dict[str, Any]:
    labels = {"stepset.dev/run": name, **RUNS[name]}
    about = {"name": name, "uid": name, "creationTimestamp": f"2026-01-01T12:00:0{name[-1]}Z", "labels": labels}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about, "spec": {}}


def found(name: str) -> tuple[str, list[str]]:
    """Returns the run that a name selects, and the label selectors of the requests."""
    selectors: list[str] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if (selector := query.get("labelSelector")) is None:
            last = path.rpartition("/")[2]
            return (200, jobset(last)) if last in RUNS else (404, {"kind": "Status", "code": 404})
        selectors.append(selector)
        wanted = dict(part.split("=") for part in selector.split(",") if "=" in part)
        items = [jobset(run) for run, labels in RUNS.items() if wanted.items() <= labels.items()]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    async def call() -> str:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            workload = await find(NamespacedClient(client, "ns"), name, ("jobset",))
        return str(workload["metadata"]["name"])

    return asyncio.run(call()), selectors


def test_the_name_of_a_run_needs_no_list() -> None:
    assert found("fit-1") == ("fit-1", [])


def test_the_name_of_a_job_selects_its_newest_run() -> None:
    assert found("train") == ("fit-2", ["stepset.dev/job=train"])


def test_the_name_of_an_airflow_task_selects_its_newest_run() -> None:
    run, selectors = found("nightly.sweep.fit")
    assert run == "fit-2"
    assert selectors == ["stepset.dev/job=nightly.sweep.fit", "dag_id=nightly,task_id=sweep.fit"]


@pytest.mark.parametrize("name", ["fit", "weekly.fit", "nightly.", "a.b,c=d"])
def test_another_name_selects_no_run(name: str) -> None:
    with pytest.raises(RunNotFoundError, match="is not in namespace ns"):
        found(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fitt-1", "did you mean 'fit-1'? "),
        ("trian", "did you mean 'train'? "),
        ("another", ""),
    ],
)
def test_the_error_suggests_the_name_of_a_run_or_a_job(name: str, hint: str) -> None:
    with pytest.raises(RunNotFoundError) as raised:
        found(name)
    advice = f"{hint}list the runs of this namespace to see their names"
    where = "is not in namespace ns, or was deleted, for example after it failed in a queue"
    assert str(raised.value) == f"run {name!r} {where}; {advice}"


NO_TIMESTAMP = {"metadata": {"name": "fit-1", "labels": {"stepset.dev/run": "fit-1"}}}


@pytest.mark.parametrize(
    ("items", "selected"),
    [
        (7, None),
        ("x", None),
        ([7, None, "x"], None),
        ([7, None, jobset("fit-1"), jobset("fit-2")], "fit-2"),
        ([NO_TIMESTAMP], "fit-1"),
        ([NO_TIMESTAMP, {"metadata": {**NO_TIMESTAMP["metadata"], "creationTimestamp": 7}}], "fit-1"),
    ],
)
def test_a_list_may_have_any_content(items: Any, selected: str | None) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if "labelSelector" not in query:
            return 404, {"kind": "Status", "code": 404}
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    async def call() -> str | None:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            try:
                return str((await find(NamespacedClient(client, "ns"), "train", ("jobset",)))["metadata"]["name"])
            except RunNotFoundError:
                return None

    assert asyncio.run(call()) == selected
