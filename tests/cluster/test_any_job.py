"""The server accepts every job that stepset accepts, and every golden manifest, in four targets.

Every object is sent as a dry run, through the API server's validation and the webhooks of JobSet, Trainer and Kueue.
Two kinds of jobs are drawn: valid ones, and ones with unusual values at the edge of what Kubernetes accepts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.spec import TrainingJob, parse_job
from stepset.targets.render import render
from stepset.targets.request import RenderRequest
from tests.cluster.api import Api, Manifest
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
# API groups that the test cluster does not serve.
FOREIGN = ("scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")

WHOLE = settings(max_examples=DRAWS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[Api]:
    api = Api(cluster, namespace)
    yield api
    api.close()


@pytest.mark.parametrize(("kind", "files"), [("valid", job_files()), ("odd", odd_job_files())], ids=["valid", "odd"])
def test_the_server_accepts_what_stepset_accepts(api: Api, kind: str, files: st.SearchStrategy[JobFile]) -> None:
    tried: Counter[str] = Counter()
    accepted_by_one_only: list[JobFile] = []

    @WHOLE
    @given(files)
    def each(file: JobFile) -> None:
        tried["draws"] += 1
        # A unique name: otherwise Trainer's webhook could find the runtime of an earlier draw.
        request = _request(file, api.namespace, run=f"run{tried['draws']}")
        before = tried["jobset"] - tried["trainjob"]
        for target in TARGETS:
            objects = _accepted(lambda target=target: render(request, target)) if request else None
            if objects is not None:
                tried[target] += 1
                assert _refusals(api, objects) == []
        if tried["jobset"] - tried["trainjob"] != before:
            accepted_by_one_only.append(file)

    each()
    print(f"{kind}: {dict(tried)}")
    assert tried["draws"] >= DRAWS
    assert accepted_by_one_only == [], "a TrainJob becomes a JobSet"
    assert tried["jobset"] >= ACCEPTED[kind] * DRAWS
    assert min(tried[target] for target in TARGETS) >= 0.1 * DRAWS


@pytest.mark.parametrize(("name", "target"), [pair for pair in pairs() if pair[1] != "volcano"], ids=lambda v: v)
def test_the_server_accepts_every_golden_manifest(api: Api, name: str, target: str) -> None:
    objects = list(yaml.safe_load_all(golden_path(name, target).read_text("utf-8")))
    objects = [{**each, "metadata": {**each["metadata"], "namespace": api.namespace}} for each in objects]
    assert _refusals(api, objects) == []


def _request(file: JobFile, namespace: str, run: str) -> RenderRequest | None:
    """A request for the job, with an image because pods need one; None if stepset refuses the job."""
    job = _accepted(lambda: parse_job({"image": "registry.example/train:1", **file}))
    return None if job is None else _accepted(lambda: make_request(job, _sources(job), run=run, namespace=namespace))


def _sources(job: TrainingJob) -> Sources:
    script = b"print()\n" if job.script is not None and job.code is None else None
    return Sources(Path("/x"), Path("/x"), script, b"packed" if job.code is not None else None)


def _accepted(call: Callable[[], Any]) -> Any:
    """Returns the result of `call`; None if stepset refuses the input, with one line for each problem."""
    try:
        return call()
    except BadInputError as error:
        assert error.problems and not any("\n" in line for line in error.problems)
        return None


def _refusals(api: Api, objects: list[Manifest]) -> list[str]:
    """Why the server refuses objects of a run, or Jobs that the controller would create for a JobSet."""
    messages = []
    runtime = next((each for each in objects if each["kind"] == "TrainingRuntime"), None)
    if runtime is not None:
        messages.append(api.refused(runtime, dry_run=False))  # a TrainJob is refused without its runtime
    for each in objects:
        if each["apiVersion"] not in FOREIGN and each is not runtime:
            messages.append(_refused_with_runtime(api, each) if each["kind"] == "TrainJob" else api.refused(each))
        if each["kind"] == "JobSet":
            # JobSet's webhook checks pods only partly; the controller creates the Jobs later, without a user to notify.
            messages += [api.refused(job) for job in _jobs(each)]
    if runtime is not None:
        api.delete(runtime["apiVersion"], runtime["kind"], runtime["metadata"]["name"])
    return [each for each in messages if each is not None]


def _refused_with_runtime(api: Api, train_job: Manifest) -> str | None:
    """Retries while the runtime is not found: the webhooks get it from a watch, with a short delay."""
    for _ in range(50):
        message = api.refused(train_job)
        if message is None or "not found" not in message:
            break
        time.sleep(0.05)
    return message


def _jobs(jobset: Manifest) -> Iterator[Manifest]:
    for row in jobset["spec"]["replicatedJobs"]:
        name = f"{jobset['metadata']['name']}-{row['name']}-0"
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": row["template"]["spec"]}
