"""Fixtures of the odd jobs that use a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Api
from tests.cluster.conftest import cluster, namespace, runs, testbed_choice, volcano
from tests.cluster.testbed.handle import Cluster

__all__ = ["cluster", "namespace", "runs", "testbed_choice", "volcano"]


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[Api]:
    """The cluster's API, in a namespace for one test."""
    api = Api(cluster, namespace)
    yield api
    api.close()
