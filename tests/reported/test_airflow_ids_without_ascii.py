"""The run of a task whose DAG, task and run have any IDs has valid labels and a valid name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.safe_names import label_value
from stepset_airflow.identity import cluster_name, labels_of, owner_of, run_name
from tests.airflow.test_identity import Ti
from tests.reported.test_names_without_ascii import ANY_TEXT, DNS_1035, LABEL_VALUE

pytestmark = pytest.mark.airflow


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.integers(-1, 1000))
def test_labels_and_names_are_valid_for_all_ids(dag: str, task: str, run: str, index: int) -> None:
    ti = replace(Ti(), dag_id=dag, task_id=task, run_id=run, map_index=index)
    assert all(map(LABEL_VALUE.fullmatch, (*labels_of(ti).values(), owner_of(ti, "airflow"))))
    assert all(map(DNS_1035.fullmatch, (run_name(ti), cluster_name(ti, "airflow", 1))))


def test_a_dag_and_a_task_in_chinese_have_labels_of_their_own() -> None:
    labels = labels_of(replace(Ti(), dag_id="训练", task_id="模型"))
    assert labels["dag_id"] == "d8b16075c"
    assert labels["dag_id"] != labels["task_id"]


@given(st.text())
def test_a_label_is_the_one_of_kubernetes_pod_operator_if_that_one_is_valid(text: str) -> None:
    from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value

    theirs = make_safe_label_value(text)
    assert label_value(text) == theirs.removeprefix("-")
    assert re.match("-", theirs) is None or not LABEL_VALUE.fullmatch(theirs)
