"""An API server accepts the objects in the pages for users. The tests send a dry run with strict validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.code_blocks import ROOT, blocks

pytestmark = pytest.mark.cluster

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/guides/*.md"))]
NOT_INSTALLED = ("monitoring.coreos.com/", "kubeflow.org/", "argoproj.io/")
"""The API groups of projects that the test cluster does not have."""


def _objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the objects in the YAML blocks of the pages, with the places of the blocks."""
    for block in (block for page in PAGES for block in blocks(page) if block.language == "yaml"):
        for document in yaml.safe_load_all(block.text):
            if not document.get("apiVersion", NOT_INSTALLED[0]).startswith(NOT_INSTALLED):
                yield f"{block}, {document['kind']}", document


OBJECTS = dict(_objects())


def test_the_objects_of_the_pages_are_found() -> None:
    kinds = {document["kind"] for document in OBJECTS.values()}
    assert {"CronJob", "LimitRange", "ResourceQuota", "ValidatingAdmissionPolicy", "LocalQueue"} <= kinds


@pytest.mark.parametrize("place", OBJECTS)
def test_the_server_accepts_the_object(cluster: Cluster, namespace: str, place: str) -> None:
    document = OBJECTS[place]
    api = document["apiVersion"]
    if api.startswith("kueue.x-k8s.io/") and api not in cluster.kubectl("api-versions").split():
        pytest.skip(f"this cluster does not serve {api}")
    _send(cluster, namespace, document)


def test_the_server_refuses_an_unknown_field(cluster: Cluster, namespace: str) -> None:
    quota = next(each for each in OBJECTS.values() if each["kind"] == "ResourceQuota")
    with pytest.raises(TestbedError, match="strict decoding error: unknown field"):
        _send(cluster, namespace, {**quota, "spec": {**quota["spec"], "soft": {}}})


def _send(cluster: Cluster, namespace: str, document: dict[str, Any]) -> None:
    """Sends an object as a dry run. If the object has a namespace, the test's namespace replaces the object's."""
    about = document["metadata"]
    own = {**document, "metadata": {**about, "namespace": namespace}} if "namespace" in about else document
    words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"]
    assert "(server dry run)" in cluster.kubectl(*words, text=yaml.safe_dump(own))
