"""A worker finds the run of an earlier worker by the record, or by the name and the owner of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepset_airflow.run.clusters import Clusters
from stepset_airflow.run.record_store import RecordStore
from tests.airflow.cluster.dying import FileStore, Ti, claim
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.serving import serving
from tests.kubernetes.stored_objects import StoredObjects

JOB = {"name": "digits", "framework": "torch", "image": "image", "command": ["python3", "train.py"]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, StoredObjects]]:
    """A kubeconfig, and the objects of the server."""
    objects = StoredObjects(lambda: serves.bodies[-1][2])
    serves = ApiServer(objects.answer)
    with serving(serves) as port:
        yield kubeconfig(tmp_path, port), objects


def test_a_worker_follows_the_run_of_the_record(server: tuple[str, StoredObjects], tmp_path: Path) -> None:
    (config, objects), store = server, FileStore(tmp_path / "state")
    first = claim(config, "ns", JOB, Ti("daily"), store)
    second = claim(config, "ns", JOB, Ti("daily"), store)
    assert (first.found, second.found) == (False, True)
    assert second.record == first.record
    assert len(objects.of_kind("jobsets")) == 1


def test_a_worker_that_died_before_it_stored_the_uid_leaves_one_run(
    server: tuple[str, StoredObjects], tmp_path: Path
) -> None:
    (config, objects), store = server, FileStore(tmp_path / "state")
    records = RecordStore(store)
    first = claim(config, "ns", JOB, Ti("daily"), store)
    records.save(replace(first.record, uid=""))
    second = claim(config, "ns", JOB, Ti("daily"), store)
    assert second.record.uid == first.record.uid == objects.of_kind("jobsets")[0]["metadata"]["uid"]
    assert records.read() == second.record


def test_a_run_of_another_task_is_not_found(server: tuple[str, StoredObjects], tmp_path: Path) -> None:
    config, _ = server
    first = claim(config, "ns", JOB, Ti("daily"), FileStore(tmp_path / "state"))
    clusters, unrecorded = Clusters(), replace(first.record, uid="")
    assert clusters.find(unrecorded, "another owner") is None
    assert clusters.attach(unrecorded, "another owner") is None


def test_a_run_that_has_not_ended_is_active_and_has_not_succeeded(
    server: tuple[str, StoredObjects], tmp_path: Path
) -> None:
    config, objects = server
    record = claim(config, "ns", JOB, Ti("daily"), FileStore(tmp_path / "state")).record
    clusters, [workload] = Clusters(), objects.of_kind("jobsets")
    assert clusters.is_active(record, workload)
    assert clusters.succeeded(record, epoch=1) is None
