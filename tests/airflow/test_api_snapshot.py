"""docs/api/stepset_airflow.txt and docs/reference record the provider's public API; each name can be imported."""

from __future__ import annotations

import pytest
from tools.api_pages import main as pages_main
from tools.api_snapshot import main

import stepset_airflow

pytestmark = pytest.mark.airflow


def test_the_record_of_stepset_airflow_is_current() -> None:
    assert main(["--check", "--package", "stepset_airflow"]) == 0


def test_the_page_of_stepset_airflow_is_current() -> None:
    assert pages_main(["--check", "--package", "stepset_airflow"]) == 0


def test_dir_lists_all_public_names() -> None:
    assert dir(stepset_airflow) == sorted(stepset_airflow.__all__)


@pytest.mark.parametrize("name", stepset_airflow.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(stepset_airflow, name).__name__ == name
