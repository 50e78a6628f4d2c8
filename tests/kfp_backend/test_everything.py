"""One pipeline with every construct and every setting of a task runs; the second run of it uses KFP's cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.kfp_backend.layout import NAMESPACE

from stepset.targets.metadata import JOB
from tests.cluster.testbed.faults import set_gpus
from tests.kfp_backend import stored
from tests.kfp_backend.backend import Backend, Object, node_name
from tests.kfp_backend.everything import CLAIM, SECRET, SETTINGS, TRAIN, everything
from tests.kfp_backend.volumes import claim

pytestmark = pytest.mark.cluster

PICTURES = os.environ.get("STEPSET_KFP_PICTURES", "")
"""A directory for the report and for pictures of it, which chromium takes."""
TRAININGS = Counter(["full", "cached", "count", "loop", "loop", "nested"])
STEPS = {"choose", "cleanup-training", "collect", "count", "wait-for-training", "distributed-train"}
"""Components with a step that runs; `dsl.Else` would add none."""


@pytest.fixture
def prepared(backend: Backend) -> Iterator[Backend]:
    """The backend with a claim, a Secret, a ConfigMap and accelerators."""
    directory = backend.shared / "volume"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    (backend.shared / "train.py").write_text(TRAIN)
    cluster = backend.cluster
    assert cluster.choice is not None
    secret = {"kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"word": "s"}}
    settings = {"kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": {"word": "m"}}
    try:
        for each in (secret, settings):
            cluster.apply({"apiVersion": "v1", **each}, NAMESPACE)
        for worker in cluster.choice.worker_nodes:
            set_gpus(cluster.choice, worker, 2)
        with claim(cluster, CLAIM, directory):
            yield backend
    finally:
        for worker in cluster.choice.worker_nodes:
            set_gpus(cluster.choice, worker, 0)
        names = (f"secret/{SECRET}", f"configmap/{SETTINGS}")
        cluster.kubectl("delete", *names, "-n", NAMESPACE, "--ignore-not-found")


def test_a_pipeline_that_uses_everything_succeeds_and_its_second_run_uses_the_cache(
    prepared: Backend,
) -> None:
    pipeline = everything(prepared.settings(), str(time.time_ns()))
    first = prepared.submit(pipeline, caching=None)
    assert prepared.wait(first) == "SUCCEEDED", prepared.describe(first)
    assert {component(each) for each in prepared.steps(first)} == STEPS
    _check_trainings(prepared, first)
    _check_report(prepared, first)

    second = prepared.submit(pipeline, caching=None)
    assert prepared.wait(second) == "SUCCEEDED", prepared.describe(second)
    assert not prepared.steps(second, ".choose("), "KFP's cache has its output"
    assert prepared.steps(second, ".cleanup-training("), "a cleanup is never cached"
    assert prepared.steps(second, ".wait-for-training("), "a result of another run is never reused"
    expected = TRAININGS - Counter(["cached", "count"])
    assert Counter(_jobs(prepared, second)) == expected, (
        "the cache has the outputs of `cached` and of the component `count`"
    )


def component(step: Object) -> str:
    """Returns the component of a step's pod: the node above the executor, without counters."""
    return re.sub(r"(-\d+)?\(\d+\)$", "", node_name(step).rpartition(".")[0].rpartition(".")[2])


def _check_trainings(backend: Backend, run: str) -> None:
    assert Counter(_jobs(backend, run)) == TRAININGS
    result = json.loads((backend.shared / "volume/home/full-f/seen.json").read_text())
    assert result == {
        "PLAIN": 'a "plain" word',
        "FROM_SECRET": "s",
        "FROM_SETTINGS": "m",
        "/secret": "s",
        "/settings": "m",
        "shared": True,
    }
    (full,) = (each for each in backend.trainings(run) if each["metadata"]["labels"][JOB] == "full")
    template = full["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {"key": "example-key", "operator": "Exists", "effect": "NoSchedule"} in template["tolerations"]
    assert template["affinity"]["nodeAffinity"]
    assert template["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "512Mi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "10m", "memory": "64Mi", "nvidia.com/gpu": "1"},
    }


def _jobs(backend: Backend, run: str) -> list[str]:
    """Returns the names of the jobs of a pipeline run's trainings."""
    return [each["metadata"]["labels"][JOB] for each in backend.trainings(run)]


def _check_report(backend: Backend, run: str) -> None:
    reports = stored.artifacts(run, "distributed-train", "report", backend.shared / "stored")
    (page,) = [text for text in map(bytes.decode, reports) if "rank 1" in text]  # the nested one has one rank
    assert page.count("<polyline") == 2, "a chart of each metric"
    assert "Succeeded" in page
    if PICTURES:
        (Path(PICTURES) / "report.html").write_text(page)
        for width in (1280, 390):
            picture = Path(PICTURES, f"report-{width}.png")
            options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1600"]
            address = (Path(PICTURES) / "report.html").as_uri()
            subprocess.run(["chromium", *options, f"--screenshot={picture}", address], check=True, timeout=300)
