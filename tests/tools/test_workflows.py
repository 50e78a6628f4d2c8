"""GitHub's workflows: actions are pinned by commit, and only the job that publishes can prove its identity to PyPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.release import ROOT

FILES = sorted(path for path in (ROOT / ".github").rglob("*.y*ml") if path.parent.name != "ISSUE_TEMPLATE")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")


def uses(text: str) -> list[str]:
    return [line.split("uses:", 1)[1].strip() for line in text.splitlines() if re.match(r"\s*(- )?uses:", line)]


def jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from yaml.safe_load(path.read_text())["jobs"].items()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned_by_a_commit_with_its_version_as_a_comment(path: Path) -> None:
    found = uses(path.read_text())
    assert found
    assert [each for each in found if not PINNED.fullmatch(each)] == []


def test_every_use_of_an_action_is_found() -> None:
    for path in FILES:
        steps = [step for _, job in jobs(path) for step in job["steps"] if "uses" in step]
        assert len(uses(path.read_text())) == len(steps)
    assert PINNED.fullmatch(f"actions/checkout@{'a' * 40} # v1.2.3")
    for unpinned in ("actions/checkout@v4", f"actions/checkout@{'a' * 39}", f"actions/checkout@{'a' * 40}", "./local"):
        assert not PINNED.fullmatch(unpinned)


def test_only_the_job_that_publishes_has_an_identity_token_and_it_runs_no_command() -> None:
    path = ROOT / ".github/workflows/release.yml"
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    with_token = {name: job for name, job in jobs(path) if "id-token" in job["permissions"]}
    assert list(with_token) == ["publish"]
    publish = with_token["publish"]
    assert (publish["environment"]["name"], publish["permissions"]) == ("pypi", {"id-token": "write"})
    assert publish["needs"] == "build"
    actions = [step["uses"].split("@")[0] for step in publish["steps"]]
    assert actions == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


def test_each_pull_request_runs_the_gate_and_each_night_everything() -> None:
    text = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    assert {"pull_request", "schedule"} < set(text[True])  # `on` is true in YAML 1.1
    commands = {name: [step.get("run") for step in job["steps"]] for name, job in text["jobs"].items()}
    assert ".ci/run" in commands["gate"] and "make lint test-all" in commands["everything"]


def test_no_workflow_inserts_an_expression_into_a_command() -> None:
    """GitHub replaces `${{ ... }}` before the shell reads the text: a tag's name could contain commands."""
    commands = [step["run"] for path in FILES for _, job in jobs(path) for step in job["steps"] if "run" in step]
    assert commands
    assert [command for command in commands if "${{" in command] == []


@pytest.mark.parametrize(
    ("workflow", "wanted"),
    [("release", {"lint", "test", "audit", "dist", "sbom"}), ("tests", {"lint", "test-all"})],
)
def test_the_commands_of_a_workflow_exist(workflow: str, wanted: set[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / f".github/workflows/{workflow}.yml").read_text()
    assert {word for line in re.findall(r"run: make (.*)", text) for word in line.split()} == wanted
    assert all(f"\n{name}:" in makefile for name in wanted)
