"""The `cluster` fixture: a real Kubernetes cluster, or one line that states how to get one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.remedies import installed_targets
from tests.cluster.runs import Runs, runs_in
from tests.cluster.stage import Stage
from tests.cluster.testbed import handle, outages
from tests.cluster.testbed import volcano as testbed_volcano
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice, TestbedError

LONGEST = "test_frameworks.py"
"""The file that takes longest; it starts first when files run in parallel."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest file first, and tests that break the cluster after all others."""
    items.sort(key=lambda item: (item.get_closest_marker("disruptive") is not None, item.path.name != LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Function) -> None:
    """Repairs the cluster after a test that breaks it, before other fixtures are torn down."""
    if item.get_closest_marker("disruptive") is not None and "testbed_choice" in item.funcargs:
        outages.repair(item.funcargs["testbed_choice"])


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster that KUBECONFIG names or that `make cluster` started; see docs/testing/cluster.md."""
    try:
        return handle.find()
    except handle.NoClusterError as error:
        if os.environ.get("STEPSET_CLUSTER") == "required":
            pytest.fail(f"STEPSET_CLUSTER=required, but {error}", pytrace=False)
        pytest.skip(str(error))
    except TestbedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def testbed_choice(cluster: Cluster) -> Choice:
    """The choice of the cluster of `make cluster`; skips tests that break nodes or need known versions on others."""
    if cluster.choice is None:
        pytest.skip("only on the cluster of `make cluster`, not on one that KUBECONFIG names")
    return cluster.choice


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace for one test."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def runs(cluster: Cluster, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Runs of an account with the rights of `stepset rbac`; parametrize it indirectly for another target."""
    target = getattr(request, "param", "jobset")
    if target == "volcano":
        request.getfixturevalue("volcano")
    with runs_in(cluster, namespace, tmp_path, target) as found:
        yield found


@pytest.fixture(scope="module")
def volcano(cluster: Cluster) -> Iterator[None]:
    """Volcano, which the other tests do not expect; the tests of a module that use it are marked `disruptive`."""
    if cluster.choice is not None:
        with testbed_volcano.running(cluster.choice):
            yield
    elif "volcano" in installed_targets(cluster):
        yield
    else:
        pytest.skip("this cluster has no Volcano")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """The directory through which the test controls the ranks of its runs."""
    path = tmp_path / "stage"
    path.mkdir()
    return Stage(path)
