"""The name of a task instance's run, and its attempt number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.base import RunHandle, RunRequest
from stepset.backends.local import LocalBackend
from stepset.errors import InfrastructureError
from stepset.sources import read_sources
from stepset.spec import TrainingJob
from stepset.spec.names import check_dns_1035, jobset_name_budget
from stepset.watch.present.sentences import end_sentence
from stepset_airflow.identity import attempt, cluster_name, earlier_run, epoch, free_name, labels_of, owner_of, run_name


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


NO_REGION = UUID(int=0)


@dataclass(frozen=True)
class TiOfAirflow34(Ti):
    """A task instance of Airflow 3.4."""

    region_id: UUID | None = NO_REGION
    region_index: int | None = -1
    _ti_context_from_server: Any = None


class TestRegion:
    """The identity of a task instance that Airflow 3.4 created at run time."""

    def names(self, ti: Ti) -> tuple[str, ...]:
        return run_name(ti), cluster_name(ti, "a", 1), owner_of(ti, "a")

    def test_without_one_the_names_are_those_of_airflow_3_3(self) -> None:
        assert self.names(TiOfAirflow34()) == self.names(Ti())
        assert self.names(TiOfAirflow34(region_id=None, region_index=None)) == self.names(Ti())

    def test_each_iteration_of_a_loop_has_its_own_names(self) -> None:
        iterations = [TiOfAirflow34(region_id=UUID(int=7), region_index=index) for index in range(3)]
        replaced = TiOfAirflow34(region_id=UUID(int=8), region_index=2)
        found = [self.names(ti) for ti in (*iterations, replaced, TiOfAirflow34())]
        assert all(len(set(names)) == 5 for names in zip(*found, strict=True))

    def test_a_retry_of_an_iteration_has_the_same_name_on_a_cluster(self) -> None:
        first = TiOfAirflow34(region_id=UUID(int=7), region_index=1)
        assert cluster_name(first, "a", 1) == cluster_name(replace(first, try_number=2), "a", 1)

    def test_a_mapped_task_outside_of_loops_is_identified_by_its_map_index_alone(self) -> None:
        mapped = TiOfAirflow34(map_index=1, region_id=UUID(int=7), region_index=1)
        assert self.names(mapped) == self.names(Ti(map_index=1))

    def test_a_mapped_task_in_a_loop_has_its_own_names_in_each_iteration(self) -> None:
        inside = SimpleNamespace(loop=object())
        mapped = [TiOfAirflow34("d", map_index=1, region_id=UUID(int=id_), region_index=1) for id_ in (7, 8)]
        found = [self.names(replace(ti, _ti_context_from_server=inside)) for ti in mapped]
        assert all(len(set(names)) == 2 for names in zip(*found, strict=True))

    def test_the_labels_name_the_region_of_a_task_in_a_loop(self) -> None:
        labels = labels_of(TiOfAirflow34(region_id=UUID(int=7), region_index=1))
        assert (labels["region_id"], labels["region_index"]) == ("00000000-0000-0000-0000-000000000007", "1")
        assert set(labels_of(TiOfAirflow34())) == {"dag_id", "task_id", "run_id"}


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


def test_the_earlier_run_of_a_task_instance_is_the_latest_run_of_its_previous_try(backend: LocalBackend) -> None:
    assert earlier_run(replace(Ti(), try_number=2), backend) is None
    for name in (run_name(Ti()), f"{run_name(Ti())}-2"):
        running = start(backend, name, "sleep", "60")
        running.cancel(reason="its task was killed.")
        running.wait()
    found = earlier_run(replace(Ti(), try_number=2), backend)
    assert found is not None and found.name == f"{run_name(Ti())}-2"
    assert end_sentence(found).endswith(": its task was killed.")
    assert earlier_run(Ti(), backend) is None


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
