"""tools/kfp-backend without a cluster: which sources are accepted, and how a copy of them is changed."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from tools.kfp_backend.changes import Change, copy_and_change
from tools.kfp_backend.layout import ARGO_VERSION, KFP_VERSION
from tools.kfp_backend.sources import ARGO_VARIABLE, KFP_VARIABLE, Sources, from_environment, missing

from tests.cluster.testbed.layout import TestbedError

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
GO_MOD = "module github.com/argoproj/argo-workflows/v4\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Two directories with the files by which the versions are recognized."""
    inner = hashlib.sha256(GO_MOD.encode()).hexdigest()
    digest = base64.b64encode(hashlib.sha256(f"{inner}  go.mod\n".encode()).digest()).decode()
    for name in ("kfp", "argo"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "go.mod").write_text(GO_MOD)
        (tmp_path / name / "go.sum").write_text(
            f"github.com/argoproj/argo-workflows/v4 v{ARGO_VERSION}/go.mod h1:{digest}\n"
        )
    (tmp_path / "kfp" / "VERSION").write_text(f"{KFP_VERSION}\n")
    return {KFP_VARIABLE: str(tmp_path / "kfp"), ARGO_VARIABLE: str(tmp_path / "argo")}


def test_the_sources_of_the_supported_versions_are_accepted(environ: dict[str, str], tmp_path: Path) -> None:
    assert from_environment(environ) == Sources(tmp_path / "kfp", tmp_path / "argo")


def test_variables_that_are_not_set_are_named(environ: dict[str, str]) -> None:
    assert missing({}) == [KFP_VARIABLE, ARGO_VARIABLE]
    del environ[ARGO_VARIABLE]
    with pytest.raises(TestbedError, match=f"^{ARGO_VARIABLE} not set; see tools/kfp-backend --help$"):
        from_environment(environ)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("kfp/VERSION", "2.16.1", f"is version 2.16.1; check out tag {KFP_VERSION}"),
        ("kfp/VERSION", None, "VERSION cannot be read"),
        ("argo/go.mod", "module other\n", f"is not version {ARGO_VERSION}; check out tag v{ARGO_VERSION}"),
        ("argo/go.mod", None, "go.mod cannot be read"),
    ],
)
def test_other_directories_are_refused(
    environ: dict[str, str], tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(TestbedError, match=message) as found:
        from_environment(environ)
    assert "\n" not in str(found.value)


def test_a_change_replaces_a_text_that_occurs_once(tmp_path: Path) -> None:
    file = tmp_path / "main.go"
    file.write_text("one two one")
    Change("main.go", "two", "2").apply(tmp_path)
    assert file.read_text() == "one 2 one"
    for change in (Change("main.go", "one", "1"), Change("main.go", "three", "3"), Change("none.go", "one", "1")):
        with pytest.raises(TestbedError, match="is not the file of the supported version"):
            change.apply(tmp_path)
    assert file.read_text() == "one 2 one"


def test_sources_that_cannot_be_copied_are_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="the sources cannot be copied: ") as found:
        copy_and_change(Sources(tmp_path / "none", tmp_path / "neither"), tmp_path / "copies")
    assert "\n" not in str(found.value)


def test_the_command_line_names_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in (KFP_VARIABLE, ARGO_VARIABLE)}
    command = [str(ROOT / "tools/kfp-backend"), "build"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kfp-backend: {KFP_VARIABLE} and {ARGO_VARIABLE} not set; see tools/kfp-backend --help\n"
