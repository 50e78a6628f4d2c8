"""The fixtures of the tests that run tasks of Airflow. They configure Airflow, so they are imported before Airflow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.airflow.conftest import _remove_home, airflow_db, run_dag, stepset_home, write_dag

__all__ = ["_remove_home", "airflow_db", "run_dag", "stepset_home", "write_dag"]

_WITH_AIRFLOW = (
    "test_a_worker_parses_a_dag_file_whose_job_has_changed.py",
    "test_nothing_after_a_training_fails_its_task.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores files that import Airflow if it is not installed, or if the marker expression deselects their tests."""
    if collection_path.name not in _WITH_AIRFLOW:
        return None
    return True if "not airflow" in config.option.markexpr or find_spec("airflow") is None else None
