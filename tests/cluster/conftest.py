"""The `cluster` fixture: a real Kubernetes cluster, or one clear line that says how to get one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.testbed import handle
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster that KUBECONFIG names or that `make cluster` brought up; see docs/testing/cluster.md."""
    found = handle.find()
    if found is None:
        if os.environ.get("STEPSET_CLUSTER") == "required":
            pytest.fail(f"STEPSET_CLUSTER=required, but {handle.NO_CLUSTER}", pytrace=False)
        pytest.skip(handle.NO_CLUSTER)
    return found


@pytest.fixture(scope="session")
def testbed_choice(cluster: Cluster) -> Choice:
    """For tests that break nodes or need known versions: only on the cluster of `make cluster`."""
    if cluster.choice is None:
        pytest.skip("faults are made on the cluster of `make cluster` only, not on one that KUBECONFIG names")
    return cluster.choice


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    with cluster.namespace() as name:
        yield name
