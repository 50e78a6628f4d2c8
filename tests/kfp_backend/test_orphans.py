"""A pipeline run that is terminated stops its trainings within a minute, however its steps end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kfp import dsl
from tools.kfp_backend.layout import NAMESPACE

from stepset.backends.kubernetes.orphans.watcher import WATCHES
from stepset_kfp import distributed_train
from tests.kfp_backend.backend import RUN_OF_TRAINING, Backend, is_live
from tests.kfp_backend.pipelines import TRAIN
from tests.waiting import until

pytestmark = pytest.mark.cluster

TRAININGS = int(os.environ.get("STEPSET_KFP_TRAININGS", "20"))
"""Trainings of the pipeline run that is terminated."""
BUSY = int(os.environ.get("STEPSET_KFP_BUSY", "20"))
"""Processes that keep this machine busy meanwhile."""
WITHIN = 60.0
"""Seconds within which all trainings must have stopped."""
START = 1200.0
"""Seconds within which the trainings must have started."""


def trainings(backend: Backend, count: int, **inputs: Any) -> Any:
    """Returns a pipeline with some trainings that run until the file `go` exists."""
    (backend.shared / "train.py").write_text(TRAIN)
    home = backend.shared / "home"
    home.mkdir()

    @dsl.pipeline(name="trainings")
    def pipeline():
        with dsl.ParallelFor(list(range(count))) as item:
            distributed_train(
                **{"num_nodes": 1, **backend.settings(), **inputs}, args=[item], checkpoint_dir=f"{home}/c-{item}"
            )

    return pipeline


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps this machine busy with some processes."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


def watched(backend: Backend, run: str) -> int:
    """Returns the number of the run's live trainings with a running watcher."""
    names = {each["metadata"]["name"] for each in backend.trainings(run) if is_live(each)}
    pods = backend.cluster.get("pods", NAMESPACE, WATCHES)["items"]
    running = [each for each in pods if each["status"].get("phase") == "Running"]
    return sum(each["metadata"]["labels"][WATCHES] in names for each in running)


def test_a_terminated_run_stops_all_its_trainings_within_a_minute_on_a_busy_machine(backend: Backend) -> None:
    run = backend.submit(trainings(backend, TRAININGS))
    backend.cluster.wait("the trainings and their watchers", lambda: watched(backend, run) == TRAININGS, START)
    stopped: dict[str, float] = {}
    with busy(BUSY):
        time.sleep(10)
        begin = time.monotonic()
        backend.client.terminate_run(run)

        def all_stopped() -> bool:
            for each in backend.trainings(run):
                if not is_live(each):
                    stopped.setdefault(each["metadata"]["name"], time.monotonic() - begin)
            return len(stopped) == TRAININGS

        assert until(all_stopped, WITHIN, 0.3), f"{len(stopped)} of {TRAININGS} have stopped\n{backend.describe(run)}"
        load = os.getloadavg()[0]
    by_watcher = sum("stepset.dev/orphaned" in annotations(each) for each in backend.trainings(run))
    seconds = sorted(round(each, 1) for each in stopped.values())
    print(f"load {load:.0f}, {by_watcher} by a watcher, the others by their steps; seconds: {seconds}")
    backend.wait(run)


def annotations(workload: dict[str, Any]) -> dict[str, str]:
    return dict(workload["metadata"].get("annotations") or {})


def test_a_step_whose_pod_is_removed_by_force_continues_its_training_and_after_a_termination_it_stops(
    backend: Backend,
) -> None:
    run = backend.submit(trainings(backend, 1))
    backend.cluster.wait("the training and its watcher", lambda: watched(backend, run) == 1, START)
    (training,) = backend.trainings(run)
    for _ in range(2):
        pod = backend.running_step(run)
        backend.delete_pod(pod, grace=0)
        backend.cluster.wait("the next try of the step", lambda: another(backend, run, pod), 300)  # noqa: B023
        assert not any("stepset.dev/orphaned" in annotations(each) for each in backend.trainings(run))
    backend.client.terminate_run(run)
    # No step acts: argoexec and the step's program are killed.
    for each in backend.steps(run):
        backend.delete_pod(each, grace=0)
    assert until(lambda: not any(map(is_live, backend.trainings(run))), WITHIN, 0.3), backend.describe(run)
    assert [each["metadata"]["uid"] for each in backend.trainings(run)] == [training["metadata"]["uid"]]


def another(backend: Backend, run: str, pod: dict[str, Any]) -> bool:
    """Whether a step runs in another pod."""
    return backend.running_step(run)["metadata"]["uid"] != pod["metadata"]["uid"]


def test_a_training_with_keep_survives_its_pipeline_run(backend: Backend) -> None:
    run = backend.submit(trainings(backend, 1, on_orphan="keep", on_interrupt="leave"))
    backend.cluster.wait("the training", lambda: any(map(is_live, backend.trainings(run))), START)
    backend.terminate(run)
    time.sleep(30)
    assert any(map(is_live, backend.trainings(run)))
    backend.cluster.kubectl("delete", "jobsets", "-n", NAMESPACE, "-l", f"{RUN_OF_TRAINING}={run}", "--timeout=120s")
