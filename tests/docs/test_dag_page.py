"""docs/airflow-examples.md contains the files of dags/, and a test runs each DAG."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAGS = sorted((ROOT / "dags").glob("*.py"))


@pytest.fixture
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dag_docs", ROOT / "tools" / "dag_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_the_generators_output(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.page(), "run: make docs"


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
def test_each_dag_is_on_the_page_and_run_by_a_test(path: Path) -> None:
    assert f"```python\n{path.read_text()}```" in (ROOT / "docs" / "airflow-examples.md").read_text()
    tests = [each.read_text() for each in (ROOT / "tests" / "airflow").glob("test_*.py")]
    assert any(f'EXAMPLES / "{path.name}"' in text for text in tests)
