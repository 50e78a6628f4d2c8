"""The first hour of a platform engineer without a cluster: permissions, manifests, a queue, and no kubeconfig."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.first_hour.programs import SCREENS
from tests.first_hour.readme import code_after, write_job
from tests.first_hour.shell import Shell

pytestmark = pytest.mark.local

COMMANDS = [shlex.split(line, comments=True) for line in code_after("On [a cluster]").splitlines()]


@pytest.fixture(params=SCREENS)
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    home = tmp_path / "home"
    home.mkdir()
    write_job(tmp_path / "work")
    screen = request.param
    return Shell(tmp_path / "work", home, screen.columns, variables={"KUBECONFIG": "", **screen.variables})


def words_of(command: str) -> list[str]:
    """The words of the README's command after `stepset`, without the program that reads its output."""
    (words,) = [words for words in COMMANDS if words[1] == command]
    return words[1 : words.index("|")] if "|" in words else words[1:]


def test_the_readme_applies_permissions_runs_and_renders() -> None:
    assert [words[1] for words in COMMANDS] == ["rbac", "run", "render"]


def test_the_permissions_are_those_of_one_namespace(shell: Shell) -> None:
    shown = shell(*words_of("rbac"))
    assert shown.code == 0, shown.text
    kinds = {(each["kind"], each["metadata"].get("namespace")) for each in yaml.safe_load_all(shown.text)}
    assert kinds == {("ServiceAccount", "ml"), ("Role", "ml"), ("RoleBinding", "ml")}


@pytest.mark.parametrize("queue", [(), ("--queue", "team-a")], ids=["no queue", "a queue"])
def test_the_manifests_are_those_of_the_job_and_its_queue(shell: Shell, queue: tuple[str, ...]) -> None:
    shown = shell(*words_of("render"), *queue)
    assert shown.code == 0, shown.text
    (workload,) = [each for each in yaml.safe_load_all(shown.text) if each["kind"] == "JobSet"]
    assert workload["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == (queue[1] if queue else None)
    assert workload["spec"].get("suspend", False) == bool(queue)


def test_without_a_kubeconfig_one_line_says_how_to_give_one(shell: Shell) -> None:
    shown = shell(*words_of("run"))
    assert shown.code != 0
    assert re.fullmatch(r"stepset: no kubeconfig found; give --kubeconfig FILE, or set KUBECONFIG\n", shown.text)
