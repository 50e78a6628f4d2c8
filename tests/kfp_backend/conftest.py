"""Tests on a real Kubeflow Pipelines backend: docs/testing/kfp-backend.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import cluster
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError

if TYPE_CHECKING:
    from tests.kfp_backend.backend import Backend

__all__ = ["cluster"]  # the fixture of tests/cluster
HERE = Path(__file__).parent

if find_spec("kfp") is None:
    collect_ignore_glob = ["*"]
else:
    # The component reads the name of its image when it is imported.
    from tools.kfp_backend.layout import STEP_IMAGE

    os.environ["STEPSET_KFP_IMAGE"] = STEP_IMAGE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kfp)
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


@pytest.fixture(scope="session")
def kfp_url(cluster: Cluster) -> Iterator[str]:
    """The address of KFP's API server; starts the backend if it does not run, and then removes it afterwards."""
    from tools.kfp_backend import lifecycle, sources
    from tools.kfp_backend.layout import URL

    if cluster.choice is None:
        pytest.skip("only on the cluster of `make cluster`, not on one that KUBECONFIG names")
    if unset := sources.missing():
        pytest.skip(f"{' and '.join(unset)} not set; see tools/kfp-backend --help")
    running = lifecycle.is_running()
    try:
        lifecycle.up(sources.from_environment())
    except TestbedError as error:
        pytest.fail(str(error), pytrace=False)
    try:
        yield URL
    finally:
        if not running:
            lifecycle.down()


@pytest.fixture
def backend(cluster: Cluster, kfp_url: str, tmp_path: Path) -> Backend:
    """The backend, and a directory that the test and the training pods see at the same path."""
    from tests.kfp_backend.backend import Backend

    tmp_path.chmod(0o777)
    return Backend(cluster, kfp_url, tmp_path)
