"""Tests of the Kubeflow Pipelines components; collected only in KFP's environment (`make setup-kfp`)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import cluster, namespace, testbed_choice
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError

if TYPE_CHECKING:
    from tests.kfp.steps import Steps

__all__ = ["cluster", "namespace", "testbed_choice"]  # the fixtures of tests/cluster
HERE = Path(__file__).parent

if find_spec("kfp") is None:
    collect_ignore_glob = ["*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kfp)
            # Warnings of KFP itself: deprecations of protobuf and Python, and advice that does not apply here.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:kfp"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:kfp"))


@pytest.fixture(autouse=True)
def without_local_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has not called kfp.local.init, whatever earlier tests did, and has no store for code."""
    from kfp.local.config import LocalExecutionConfig

    monkeypatch.setattr(LocalExecutionConfig, "instance", None)
    monkeypatch.delenv("STEPSET_KFP_CODE_STORE", raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A STEPSET_HOME for this test only."""
    path = tmp_path / "stepset"
    monkeypatch.setenv("STEPSET_HOME", str(path))
    yield path


@pytest.fixture(scope="session")
def workflows(cluster: Cluster, testbed_choice: object) -> None:
    """Argo's CRD, without Argo. It is not deleted, because tests in other processes may use it."""
    from tests.kfp.steps import WORKFLOWS

    try:
        cluster.kubectl("apply", "-f", "-", text=WORKFLOWS)
    except TestbedError as error:
        if "AlreadyExists" not in str(error):  # a test in another process has created it
            raise
    cluster.kubectl("wait", "--for=condition=Established", "crd/workflows.argoproj.io", "--timeout=60s")


@pytest.fixture
def bare_steps(cluster: Cluster, testbed_choice: object, namespace: str, tmp_path: Path, workflows: None) -> Steps:
    """Steps of a pipeline in the test's namespace, without their account and Role."""
    from tests.kfp.steps import Steps

    return Steps(cluster, namespace, tmp_path)


@pytest.fixture
def steps(bare_steps: Steps) -> Steps:
    """Steps of a pipeline in the test's namespace; their outputs are on this machine."""
    bare_steps.prepare()
    return bare_steps
