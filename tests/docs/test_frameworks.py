"""Every framework is in the files that CONTRIBUTING.md lists and that no other test checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import framework_docs

from stepset.frameworks import FRAMEWORKS
from stepset.frameworks.framework_spec import NO_LISTENERS
from stepset.spec import options
from stepset.spec.schema import job_schema

ROOT = Path(__file__).resolve().parents[2]
JOB_ARGS = ROOT / "src/stepset/cli/arguments/job_args.py"
DEFINED = {
    model
    for base in (options.FrameworkOptions, options.NodeLaunched)
    for model in base.__subclasses__()
    if "kind" in model.model_fields
}


def test_a_job_may_have_every_framework() -> None:
    assert set(options.MODELS.values()) == DEFINED


@pytest.mark.parametrize("kind", options.KINDS)
def test_the_schema_requires_the_kind(kind: str) -> None:
    assert job_schema()["$defs"][options.MODELS[kind].__name__]["required"] == ["kind"]


@pytest.mark.parametrize("kind", options.KINDS)
def test_the_command_line_names_it(kind: str) -> None:
    [help_text] = re.findall(r'"(torch \(default\), .*)"', JOB_ARGS.read_text("utf-8"))
    assert kind in re.findall(r"\w+", help_text)


@pytest.mark.parametrize("kind", options.KINDS)
def test_it_has_a_page(kind: str) -> None:
    assert kind in FRAMEWORKS[kind].pages


@pytest.mark.parametrize("kind", [kind for kind, each in FRAMEWORKS.items() if each.listeners != NO_LISTENERS])
def test_the_ports_that_it_opens_are_documented(kind: str) -> None:
    in_table = re.search(rf"^\|[^|]*\b{kind}\b", (ROOT / "docs" / "security.md").read_text("utf-8"), re.I | re.M)
    assert in_table or "\n## Ports\n" in (ROOT / "docs" / "frameworks" / f"{kind}.md").read_text("utf-8")


@pytest.mark.parametrize(("path", "text"), [*framework_docs.written()], ids=lambda each: getattr(each, "name", ""))
def test_the_lists_of_frameworks_are_current(path: Path, text: str) -> None:
    assert path.read_text("utf-8") == text, "run `make docs`"


@pytest.mark.parametrize(
    "kind", [kind for kind, model in options.MODELS.items() if model.model_fields.keys() - {"kind"}]
)
def test_the_page_of_the_job_file_lists_its_options(kind: str) -> None:
    assert f"\n## framework: {kind}\n" in (ROOT / "docs" / "job-file.md").read_text("utf-8")
