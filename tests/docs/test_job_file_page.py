"""docs/job-file.md matches the models of `stepset.spec`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from stepset.spec import load_job

ROOT = Path(__file__).resolve().parents[2]


def _writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("job_file_docs", ROOT / "tools" / "job_file_docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_make_docs_would_write() -> None:
    writer = _writer()
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "run `make docs`"


def test_the_example_on_the_page_is_a_valid_job() -> None:
    job = load_job(ROOT / "examples" / "job.yaml")
    assert job.name == "digits"
    assert load_job(job.to_dict()) == job


def test_every_field_has_a_meaning() -> None:
    """A field of a base class has its docstring there."""
    rows = [line for line in _writer().page().splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert [line for line in rows if line.endswith("|  |")] == []
    assert any("`node_selector`" in line for line in rows)
