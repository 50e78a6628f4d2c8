"""Each option of ClusterOptions has an effect on a run of the Python API, or is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset import aio
from stepset.backends.base import ClusterOptions
from stepset.errors import BadInputError, TrainingFailedError
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.stored_objects import StoredObjects

JOB = {"command": ["true"], "framework": "plain", "image": "image"}


def _requests_of(tmp_path: Path, options: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[list[str], str]:
    """Runs a job on a server without controllers; returns the paths of the requests, and why the run failed."""

    async def run() -> tuple[list[str], str]:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        queue = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues/team"
        objects.by_path[queue] = {"metadata": {"name": "team", "uid": "team"}}
        async with ApiServer(objects.answer) as server:
            cluster = ClusterOptions(**{"kubeconfig": kubeconfig(tmp_path, server.port), "namespace": "ns", **options})
            with pytest.raises(TrainingFailedError) as raised:
                await asyncio.wait_for(aio.run(job, "kubernetes", base_dir=tmp_path, cluster=cluster), 30)
            return [path for _, path, _ in server.requests], str(raised.value)

    return asyncio.run(run())


def test_the_startup_timeout_ends_a_run_whose_pods_do_not_start(tmp_path: Path) -> None:
    paths, reason = _requests_of(tmp_path, {"startup_timeout": 0.2}, JOB)
    assert "without all pods running" in reason
    assert "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets" in paths


def test_the_admission_timeout_ends_a_run_that_waits_in_a_queue(tmp_path: Path) -> None:
    job = {**JOB, "scheduling": {"queue_name": "team"}}
    _, reason = _requests_of(tmp_path, {"admission_timeout": 0.2, "startup_timeout": None}, job)
    assert "in the queue" in reason


def test_the_target_is_the_kind_of_the_workload(tmp_path: Path) -> None:
    paths, _ = _requests_of(tmp_path, {"startup_timeout": 0.2, "target": "job"}, JOB)
    assert "/apis/batch/v1/namespaces/ns/jobs" in paths
    assert not any("jobsets" in path for path in paths)


def test_a_context_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    options = ClusterOptions(kubeconfig(tmp_path, 1), context="other")
    with pytest.raises(BadInputError, match="'other' is not in kubeconfig"):
        stepset.run(JOB, "kubernetes", cluster=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"admission_timeout": 5.0},
            "cluster.admission_timeout: after submit no process waits for the run and enforces the timeout; call run,",
        ),
        (
            {"startup_timeout": 5.0},
            "cluster.startup_timeout: after submit no process waits for the run and enforces the timeout; call run,",
        ),
        ({"sources": frozenset({"rank 0"})}, "cluster.sources: submit reads no lines of the run; leave it out"),
    ],
)
def test_submit_refuses_an_option_that_needs_a_process_that_follows_the_run(
    tmp_path: Path, options: Mapping[str, Any], message: str
) -> None:
    cluster = ClusterOptions(kubeconfig(tmp_path, 1), **options)
    with pytest.raises(BadInputError) as raised:
        stepset.submit(JOB, "kubernetes", cluster=cluster)
    assert str(raised.value).startswith(message)


LOCAL = "cluster: requires backend='kubernetes'; give that backend, or leave cluster out"


def test_options_of_a_cluster_are_an_error_for_a_local_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    cluster = ClusterOptions(namespace="ml")
    for call in (
        lambda: stepset.run(JOB, cluster=cluster),
        lambda: stepset.submit(JOB, cluster=cluster),
        lambda: stepset.list_runs(cluster=cluster),
        lambda: asyncio.run(aio.run(JOB, base_dir=tmp_path, cluster=cluster)),
        lambda: asyncio.run(aio.status("digits", cluster=cluster)),
    ):
        with pytest.raises(BadInputError) as raised:
            call()
        assert str(raised.value) == LOCAL
    assert stepset.list_runs() == []
