"""The manifests in deploy/kfp grant the permissions that the components need; the image is built from lock files."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stepset.targets.rbac import rbac

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_cluster_role_has_the_rules_of_the_role_and_aggregates_to_kubeflow_edit() -> None:
    found = yaml.safe_load((DEPLOY / "kfp/clusterrole.yaml").read_text())
    assert found["rules"] == [rule for each in rbac("kfp", gang="kueue") for rule in each.get("rules", ())]
    assert found["metadata"]["labels"]["rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"] == "true"


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
