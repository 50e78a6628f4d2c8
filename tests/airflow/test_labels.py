"""A task instance's objects have the labels that KubernetesPodOperator sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepset_airflow.identity import labels_of
from tests.airflow.test_identity import Ti

pytestmark = pytest.mark.airflow


def test_labels_name_dag_task_and_run_and_are_the_same_for_all_tries() -> None:
    labels = labels_of(Ti())
    assert (labels["dag_id"], labels["task_id"]) == ("retrain", "train")
    assert labels["run_id"].startswith("scheduled__2026-01-01T0000000000-")  # without characters that labels forbid
    assert set(labels) == {"dag_id", "task_id", "run_id"}
    assert labels_of(replace(Ti(), try_number=2, max_tries=5)) == labels


def test_an_instance_of_a_mapped_task_has_its_map_index_as_a_label() -> None:
    assert labels_of(replace(Ti(), map_index=3))["map_index"] == "3"


def test_an_id_that_is_too_long_is_shortened_and_stays_unique() -> None:
    one, other = (labels_of(replace(Ti(), dag_id="d" * 80 + end))["dag_id"] for end in "ab")
    assert len(one) <= 63
    assert one != other
