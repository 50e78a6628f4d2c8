"""Pods that install the requirements of their job with uv, from a wheel that the test builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase
from tests.cluster.runs import Runs
from tests.cluster.test_frameworks import SYSTEM_PATH
from tests.cluster.testbed.layout import Choice
from tests.cluster.testbed.pod import Mount
from tests.packages import MODULE, NAME, build_wheel, uv, without_index

pytestmark = pytest.mark.cluster

PRINT = f"import os, {MODULE}\nprint({MODULE}.version, 'from', {MODULE}.__file__, flush=True)\n"
REJECTED = 72


@pytest.fixture
def image(runs: Runs, tmp_path: Path, testbed_choice: Choice) -> dict[str, Any]:
    """Fields of a job whose pods have uv and a directory of wheels, but no index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    build_wheel(wheels)
    programs = uv().resolve().parent
    template = runs.cluster.pod_template(mounts=[Mount(str(programs)), Mount(str(wheels))])["spec"]
    path = f"{programs}:{Path(runs.cluster.python).parent}:{SYSTEM_PATH}"
    return {"pod_template": template, "env": {**without_index(wheels), "PATH": path}}


@pytest.mark.parametrize("runs", ["jobset", "statefulset"], indirect=True)
def test_each_pod_installs_what_its_image_lacks(runs: Runs, image: dict[str, Any]) -> None:
    fields = {"num_nodes": 2, "procs_per_node": 2, "framework": "torch", "requirements": [f"{NAME}>=1"], **image}
    status, listener = runs.run(PRINT, **fields)
    assert status.phase is Phase.SUCCEEDED, status.failure
    lines = [line.text for line in listener.lines]
    assert len([line for line in lines if line.startswith("1.0 from /stepset/run/requirements/")]) == 4
    assert lines.count(f"requirements: uv installs {NAME}==1.0") == 2


def test_a_package_that_does_not_exist_is_an_error_of_the_requirements(runs: Runs, image: dict[str, Any]) -> None:
    status, _ = runs.run(PRINT, requirements=["missing-zz"], restart={"max_restarts": 3}, **image)
    failure = status.failure
    assert failure is not None
    assert (failure.kind, failure.exit_code, failure.restarts) == (FailureKind.REJECTED, REJECTED, 0)
    assert failure.error.startswith("requirements: uv cannot install them: ")
    assert "missing-zz" in failure.error


def test_an_image_without_uv_is_named_with_the_remedy(runs: Runs, image: dict[str, Any]) -> None:
    path = f"{Path(runs.cluster.python).parent}:{SYSTEM_PATH}"
    status, _ = runs.run(PRINT, requirements=[NAME], **{**image, "env": {**image["env"], "PATH": path}})
    failure = status.failure
    assert failure is not None
    assert failure.kind is FailureKind.REJECTED
    assert f"lacks {NAME}, and uv is missing" in failure.error
    assert "for pods in the image" in failure.error
