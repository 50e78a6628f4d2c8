"""What a retry does on the real backend: of a failed training, by a user after a termination, after Argo's TTL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from tools.kfp_backend.layout import NAMESPACE

from stepset_kfp import distributed_train
from tests.kfp_backend.backend import Backend, is_live
from tests.kfp_backend.pipelines import TRAIN

pytestmark = pytest.mark.cluster

# Fails in its first start.
FAILS_ONCE = TRAIN.replace("while not", "if attempt == '0': raise ValueError('as the test wants')\nwhile not")


def one_step(backend: Backend, text: str, *, retries: int = 0, **inputs: Any) -> tuple[Any, Path]:
    """Returns a pipeline with one training, and the directory of the files with which the test controls it."""
    home = backend.shared / "home"
    home.mkdir()
    (backend.shared / "train.py").write_text(text)

    @dsl.pipeline(name="one-step")
    def pipeline():
        task = distributed_train(
            **{"num_nodes": 1, **backend.settings(), **inputs}, checkpoint_dir=str(home / "checkpoints")
        )
        if retries:
            task.set_retry(num_retries=retries, backoff_duration="1s")

    return pipeline, home


def starts(home: Path) -> list[tuple[str, str]]:
    """Returns STEPSET_ATTEMPT of each start of rank 0, and what it began from, in their order."""
    files = [json.loads(path.read_text()) for path in sorted((home / "checkpoints-starts").glob("*-0"))]
    return [(each["attempt"], each["begin"]) for each in files]


def test_a_failed_training_is_retried_by_the_restarts_of_the_job(backend: Backend) -> None:
    pipeline, home = one_step(backend, FAILS_ONCE, restart={"max_restarts": 2})
    (home / "go").touch()
    assert backend.wait(backend.submit(pipeline)) == "SUCCEEDED"
    assert starts(home) == [("0", "nothing"), ("1", "checkpoint")]


def test_set_retry_does_not_retry_a_failed_training_on_this_version(backend: Backend) -> None:
    """docs/kfp.md says so; if this fails with a new version of KFP, change the page."""
    pipeline, home = one_step(backend, FAILS_ONCE, retries=2)
    (home / "go").touch()
    assert backend.wait(backend.submit(pipeline)) == "FAILED"
    assert starts(home) == [("0", "nothing")]


def test_each_retry_by_a_user_resumes_the_run_and_is_counted(backend: Backend) -> None:
    pipeline, home = one_step(backend, TRAIN)
    run = backend.submit(pipeline)
    expected = [("0", "nothing"), ("1", "checkpoint"), ("2", "checkpoint")]
    for count in (1, 2):
        backend.wait_until(run, "start of the training", lambda: starts(home), expected[:count])
        (training,) = backend.trainings(run)
        backend.terminate(run)
        backend.wait_until(run, "suspension", lambda: any(map(is_live, backend.trainings(run))), False)
        backend.retry(run)
    backend.wait_until(run, "last start", lambda: starts(home), expected)
    (home / "go").touch()
    assert backend.wait(run) == "SUCCEEDED"
    assert [each["metadata"]["uid"] for each in backend.trainings(run)] == [training["metadata"]["uid"]]


def test_a_retry_after_the_workflow_was_removed_begins_from_the_checkpoint(backend: Backend) -> None:
    """Argo removes a Workflow an hour after its end, and its training with it."""
    pipeline, home = one_step(backend, TRAIN)
    run = backend.submit(pipeline)
    backend.wait_until(run, "start of the training", lambda: starts(home), [("0", "nothing")])
    backend.terminate(run)
    selector = f"pipeline/runid={run}"
    backend.cluster.kubectl("delete", "workflows.argoproj.io", "-n", NAMESPACE, "-l", selector, "--timeout=120s")
    backend.wait_until(run, "deletion of the training", lambda: backend.trainings(run), [])
    backend.retry(run)
    backend.wait_until(run, "second start", lambda: starts(home), [("0", "nothing"), ("0", "checkpoint")])
    (home / "go").touch()
    assert backend.wait(run) == "SUCCEEDED"
