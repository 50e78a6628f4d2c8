"""The pipelines in pipelines/ run on a cluster as compiled; the README's commands create the claim and submit one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.kfp_backend.layout import STEP_IMAGE

from tests.kfp_backend.backend import Backend
from tests.kfp_backend.volumes import remove_claim, volume

pytestmark = pytest.mark.cluster

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
LINES = (PIPELINES / "README.md").read_text(encoding="utf-8").splitlines()
CLAIM = "digits"


def commands(start: str) -> str:
    """Returns the README's command that starts with a text, with its input."""
    at = next(at for at, line in enumerate(LINES) if line.startswith(f"$ {start}"))
    end = next(end for end in range(at + 1, len(LINES)) if LINES[end].startswith(("$ ", "```")))
    return "\n".join((LINES[at][2:], *LINES[at + 1 : end]))


@pytest.fixture
def home(backend: Backend) -> Iterator[Path]:
    """The directory of the volume to which the README's claim is bound."""
    directory = backend.shared / "volume"
    directory.mkdir()
    directory.chmod(0o777)
    with volume(backend.cluster, "digits-volume", directory):
        program = f'kubectl() {{ {backend.cluster.program} "$@"; }}\n'
        shell(program + commands("kubectl apply"), KUBECONFIG=backend.cluster.kubeconfig)
        try:
            yield directory
        finally:
            remove_claim(backend.cluster, CLAIM)


def shell(script: str, **variables: str) -> None:
    """Runs a script in the directory above pipelines/."""
    environment = {**os.environ, "NO_PROXY": "*", **variables}
    script = script.replace(".venvs/kfp/bin/kfp", str(Path(sys.executable).parent / "kfp"))
    done = subprocess.run(
        ["bash", "-euc", script], cwd=PIPELINES.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_commands_of_the_readme_run_a_pipeline(backend: Backend, home: Path) -> None:
    before = {each.run_id for each in backend.client.list_runs(page_size=100).runs or ()}
    script = "\n".join((commands(".venvs/kfp/bin/kfp dsl compile"), commands(".venvs/kfp/bin/kfp --endpoint")))
    script = script.replace("http://localhost:8080", backend.url)
    script = script.replace("digits_retrain.yaml", str(backend.shared / "digits_retrain.yaml"))
    shell(script, DIGITS_IMAGE=STEP_IMAGE, STEPSET_KFP_IMAGE=STEP_IMAGE)
    after = {each.run_id for each in backend.client.list_runs(page_size=100).runs}
    (run,) = after - before
    assert backend.wait(run, 1200) == "SUCCEEDED", backend.describe(run)
    assert (home / "models/last_good.pt").is_file(), "the first model is promoted"


@pytest.mark.parametrize("name", ["digits_sweep", "distribute_component"])
def test_a_pipeline_runs_as_compiled(backend: Backend, home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGITS_IMAGE", STEP_IMAGE)
    monkeypatch.syspath_prepend(str(PIPELINES))
    spec = importlib.util.spec_from_file_location(name, PIPELINES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = backend.submit(getattr(module, name), claim=CLAIM)
    assert backend.wait(run, 1200) == "SUCCEEDED", backend.describe(run)
