"""The name of a task instance's run, and its attempt number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.base import RunHandle, RunRequest
from stepset.backends.local import LocalBackend
from stepset.errors import InfrastructureError
from stepset.sources import read_sources
from stepset.spec import TrainingJob
from stepset.spec.names import check_dns_1035, jobset_name_budget
from stepset_airflow.identity import attempt, cluster_name, epoch, free_name, owner_of, run_name


@dataclass(frozen=True)
class Ti:
    dag_id: str = "retrain"
    task_id: str = "train"
    run_id: str = "scheduled__2026-01-01T00:00:00+00:00"
    map_index: int | None = -1
    try_number: int = 1
    max_tries: int = 0


def test_the_same_task_instance_always_has_the_same_name() -> None:
    assert run_name(Ti()) == run_name(Ti()) == "train-7b8f072d72-1"


@pytest.mark.parametrize("other", [{"dag_id": "d"}, {"run_id": "r"}, {"map_index": 0}, {"try_number": 2}])
def test_another_dag_run_map_index_or_try_has_another_name(other: dict[str, object]) -> None:
    assert run_name(replace(Ti(), **other)) != run_name(Ti())  # type: ignore[arg-type]  # one field each


@given(task_id=st.text(min_size=1, max_size=250), tries=st.integers(1, 999))
def test_every_name_is_valid_for_all_targets(task_id: str, tries: int) -> None:
    name = run_name(replace(Ti(), task_id=task_id, try_number=tries))
    check_dns_1035(name)
    assert len(name) <= jobset_name_budget([("launcher", 1)])


@pytest.mark.parametrize(
    ("try_number", "max_tries", "retries", "expected"),
    [
        pytest.param(1, 2, 2, 0, id="first try"),
        pytest.param(2, 2, 2, 1, id="first retry"),
        pytest.param(3, 2, 2, 2, id="second retry"),
        pytest.param(4, 5, 2, 0, id="cleared after three tries"),
        pytest.param(5, 5, 2, 1, id="first retry after the clear"),
        pytest.param(2, 1, 0, 0, id="cleared, no retries"),
    ],
)
def test_retries_count_as_attempts_and_a_clear_resets_the_count(
    try_number: int, max_tries: int, retries: int, expected: int
) -> None:
    assert attempt(Ti(try_number=try_number, max_tries=max_tries), retries) == expected


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(home=tmp_path, grace=1)


def start(backend: LocalBackend, name: str, *command: str) -> RunHandle:
    job = TrainingJob.model_validate({"framework": "plain", "command": list(command)})
    return backend.start(RunRequest(job, read_sources(job), name=name))


def test_an_unused_name_is_free(backend: LocalBackend) -> None:
    assert free_name("train-1", backend) == "train-1"


def test_a_task_instance_that_airflow_recreates_gets_the_next_generation(backend: LocalBackend) -> None:
    for name in ("train-1", "train-1-2"):
        start(backend, name, "true").wait()
    assert free_name("train-1", backend) == "train-1-3"


def test_a_run_that_is_still_active_is_not_started_again(backend: LocalBackend) -> None:
    running = start(backend, "train-1", "sleep", "60")
    try:
        with pytest.raises(InfrastructureError, match=r"run train-1 of this task is still .*; wait for it"):
            free_name("train-1", backend)
    finally:
        running.cancel()
        running.wait()


def test_the_name_of_a_run_on_a_cluster_depends_on_generation_and_airflow_but_not_on_the_try() -> None:
    assert cluster_name(Ti(), "a", 1) == cluster_name(replace(Ti(), try_number=3), "a", 1)
    assert len({cluster_name(Ti(), "a", 1), cluster_name(Ti(), "a", 2), cluster_name(Ti(), "b", 1)}) == 3


@given(task_id=st.text(min_size=1, max_size=250), generation=st.integers(1, 9999))
def test_every_name_of_a_run_on_a_cluster_is_valid_for_all_targets(task_id: str, generation: int) -> None:
    name = cluster_name(replace(Ti(), task_id=task_id), "https://airflow.example", generation)
    check_dns_1035(name)
    assert len(name) <= jobset_name_budget([("launcher", 1)])


def test_an_owner_is_a_valid_label_value_and_the_same_for_all_tries() -> None:
    assert owner_of(Ti(), "a") == owner_of(replace(Ti(), try_number=2, max_tries=5), "a")
    assert owner_of(Ti(), "a") != owner_of(replace(Ti(), map_index=1), "a")
    assert len(owner_of(Ti(), "a")) <= 63


def test_the_epoch_changes_only_when_a_task_is_cleared() -> None:
    assert epoch(Ti(try_number=1, max_tries=2), 2) == epoch(Ti(try_number=3, max_tries=2), 2) == 0
    assert epoch(Ti(try_number=4, max_tries=5), 2) == epoch(Ti(try_number=5, max_tries=5), 2) == 3
