"""The server accepts every job that stepset accepts, and every golden manifest, in every target.

Every object is sent as a dry run, through the API server's validation and the webhooks of the controllers.
Two kinds of jobs are drawn: valid ones, and ones with unusual values at the edge of what Kubernetes accepts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.rendering import render
from stepset.targets.kinds.trainjob import unreadable_texts
from tests.cluster.api import Api
from tests.cluster.dry_run import refusals
from tests.cluster.generated_jobs import request_of
from tests.cluster.odd_jobs import odd_job_files
from tests.cluster.testbed.handle import Cluster
from tests.strategies import JobFile, job_files
from tests.targets.golden import golden_path, pairs

pytestmark = pytest.mark.cluster

TARGETS = ("jobset", "trainjob", "statefulset", "job")
# The draws are deterministic; set STEPSET_DRAWS=300 after a change to the checks or the rendering of jobs.
DRAWS = int(os.environ.get("STEPSET_DRAWS", "80"))
# The share of draws that must reach the server, in the target with the most capabilities.
ACCEPTED = {"valid": 0.4, "odd": 0.2}

KINDS = pytest.mark.parametrize(
    ("kind", "files"), [("valid", job_files()), ("odd", odd_job_files())], ids=["valid", "odd"]
)
WHOLE = settings(max_examples=DRAWS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[Api]:
    api = Api(cluster, namespace)
    yield api
    api.close()


@KINDS
def test_the_server_accepts_what_stepset_accepts(api: Api, kind: str, files: st.SearchStrategy[JobFile]) -> None:
    tried: Counter[str] = Counter()
    accepted_by_one_only: list[JobFile] = []

    @WHOLE
    @given(files)
    def each(file: JobFile) -> None:
        tried["draws"] += 1
        # A unique name: otherwise Trainer's webhook could find the runtime of an earlier draw.
        request = request_of(file, api.namespace, f"run{tried['draws']}")
        before = tried["jobset"] - tried["trainjob"]
        for target in TARGETS:
            objects = _accepted(lambda target=target: render(request, target)) if request else None
            if objects is not None:
                tried[target] += 1
                assert refusals(api, objects) == []
        readable = request is None or not any(unreadable_texts(request.job))
        if tried["jobset"] - tried["trainjob"] != before and readable:
            accepted_by_one_only.append(file)

    each()
    print(f"{kind}: {dict(tried)}")
    assert tried["draws"] >= DRAWS
    assert accepted_by_one_only == [], "a TrainJob becomes a JobSet, except for unreadable texts"
    assert tried["jobset"] >= ACCEPTED[kind] * DRAWS
    assert min(tried[target] for target in TARGETS) >= 0.1 * DRAWS


@KINDS
@pytest.mark.disruptive
def test_volcano_accepts_what_stepset_accepts(
    volcano: None, api: Api, kind: str, files: st.SearchStrategy[JobFile]
) -> None:
    tried: Counter[str] = Counter()

    @WHOLE
    @given(files)
    def each(file: JobFile) -> None:
        tried["draws"] += 1
        request = request_of(file, api.namespace, f"run{tried['draws']}")
        objects = _accepted(lambda: render(request, "volcano")) if request else None
        if objects is not None:
            tried["accepted"] += 1
            objects[-1]["spec"].pop("queue", None)  # Volcano refuses a queue that does not exist
            assert refusals(api, objects) == []

    each()
    print(f"{kind}: {dict(tried)}")
    assert tried["accepted"] >= 0.1 * DRAWS


@pytest.mark.parametrize(("name", "target"), [pair for pair in pairs() if pair[1] != "volcano"], ids=lambda v: v)
def test_the_server_accepts_every_golden_manifest(api: Api, name: str, target: str) -> None:
    assert golden_refusals(api, name, target) == []


@pytest.mark.disruptive
def test_volcano_accepts_every_golden_manifest(volcano: None, api: Api) -> None:
    names = [name for name, target in pairs() if target == "volcano"]
    assert names
    assert {name: found for name in names if (found := golden_refusals(api, name, "volcano"))} == {}


def golden_refusals(api: Api, name: str, target: str) -> list[str]:
    """Why the server refuses the objects of a golden manifest."""
    objects = list(yaml.safe_load_all(golden_path(name, target).read_text("utf-8")))
    objects = [{**each, "metadata": {**each["metadata"], "namespace": api.namespace}} for each in objects]
    return refusals(api, objects)


def _accepted(call: Callable[[], Any]) -> Any:
    """Returns the result of `call`; None if stepset refuses the input, with one line for each problem."""
    try:
        return call()
    except BadInputError as error:
        assert error.problems and not any("\n" in line for line in error.problems)
        return None
