"""The manifests in deploy/kfp grant the permissions that the components need; the image is built from lock files."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.submit.access_review import permissions, required_by
from stepset.targets.rbac import rbac

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_cluster_role_has_the_rules_of_the_role_and_aggregates_to_kubeflow_edit() -> None:
    found = yaml.safe_load((DEPLOY / "kfp/clusterrole.yaml").read_text())
    assert found["rules"] == [rule for each in rbac("kfp", gang="kueue") for rule in each.get("rules", ())]
    assert found["metadata"]["labels"]["rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"] == "true"


def commands(start: str) -> list[list[str]]:
    """Returns the commands of deploy/kfp/README.md that begin with `start`, as lists of words."""
    page = (DEPLOY / "kfp/README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    return [shlex.split(found) for found in re.findall(rf"(?:\$ |`)({start}[^\n`|]*)", page)]


def test_the_command_of_the_page_grants_what_the_preflight_checks() -> None:
    one, other = commands("stepset rbac")
    for words, account in ((one, "pipeline-runner"), (other, "default-editor")):
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True)
        documents = [each for each in yaml.safe_load_all(done.stdout) if each]
        bound = {
            each["roleRef"]["name"]
            for each in documents
            if each["kind"] == "RoleBinding" and each["subjects"][0]["name"] == account
        }
        granted = {
            permission
            for each in documents
            if each["kind"] == "Role" and each["metadata"]["name"] in bound
            for permission in permissions(each["rules"])
        }
        assert granted >= set(required_by(Grant("kfp", gang="kueue", mpi=True)))
        assert "stepset-orphan" in bound


def test_the_command_of_the_page_runs_the_preflight_as_the_account_of_the_steps() -> None:
    (words,) = commands("kubectl run")
    overrides = json.loads(words[words.index("--overrides") + 1])
    assert overrides["spec"]["serviceAccountName"] == "pipeline-runner"
    assert words[words.index("--") + 1 : -1] == ["python3", "-m"]
    assert find_spec(words[-1]) is not None


class TestImage:
    """The steps' image contains only packages whose hashes are in this repository."""

    def test_every_installation_is_from_a_lock_file_with_hashes_or_the_wheel_that_was_built(self) -> None:
        text = (DEPLOY / "kfp/Containerfile").read_text().replace("\\\n", " ")
        installs = re.findall(r"pip (?:install|wheel) ([^&\n]*)", text)
        assert len(installs) == 4
        for arguments in installs:
            words = arguments.split()
            assert "--no-deps" in words
            assert "--no-index" in words or {"--require-hashes", "-r"} <= set(words)
        assert "--no-build-isolation" in text, "pip would install what builds the wheel without hashes"

    def test_every_stage_is_based_on_an_image_that_must_name_a_digest(self) -> None:
        lines = (DEPLOY / "kfp/Containerfile").read_text().splitlines()
        assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]
        assert "ARG BASE" in lines and not any(line.startswith("ARG BASE=") for line in lines)
        (check,) = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN case ")]
        for base, code in (("python:3.12-slim", 1), ("", 1), ("python:3.12-slim@sha256:" + "a" * 64, 0)):
            assert subprocess.run(["sh", "-c", check], env={"BASE": base}, check=False).returncode == code

    def test_the_lock_files_have_exactly_what_stepset_needs_on_a_cluster_and_kfp(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["kubernetes"]]
        texts = [(ROOT / f"locks/{name}.txt").read_text() for name in ("runtime", "kfp-executor")]
        locked = dict(re.findall(r"^([\w.-]+)==(\S+)", "\n".join(texts), re.MULTILINE))
        for each in (*wanted, *project["dependency-groups"]["kfp-executor"]):
            requirement = Requirement(each)
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), each
        assert locked["kfp"] == version("kfp"), "the tests run with another version of KFP"
        assert {"pytest", "torch", "protobuf", "kfp-server-api"}.isdisjoint(locked)
