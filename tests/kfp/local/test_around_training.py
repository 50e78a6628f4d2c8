"""`cleanup_training` and `wait_for_training` under KFP's local runner."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from stepset.backends import backend_of
from stepset.backends.base import RunRequest
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset_kfp import cleanup_training, distributed_train, wait_for_training
from tests.kfp.pipelines import run_pipeline

pytestmark = pytest.mark.local

TRAIN = """\
import json, os, sys
if sys.argv[1] == "fail":
    raise ValueError("no luck")
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"accuracy": 0.5}, file)
"""


def test_cleanup_in_an_exit_handler_runs_after_a_failure_and_after_a_success(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    @dsl.pipeline(name="test-exit")
    def pipeline(how: str) -> None:
        with dsl.ExitHandler(cleanup_training()):
            distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py", args=[how])

    failed = run_pipeline(pipeline, tmp_path / "failed", how="fail")
    assert failed.error is not None and "ValueError: no luck" in failed.log
    assert "local runs end with their steps" in failed.log
    good = run_pipeline(pipeline, tmp_path / "good", how="go")
    assert good.error is None
    assert "local runs end with their steps" in good.log


def test_waiting_for_a_run_outputs_its_result_and_its_report(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    @dsl.pipeline(name="test-wait")
    def pipeline() -> None:
        train = distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py", args=["go"])
        wait_for_training(run=train.outputs["run"])

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is None
    assert json.loads(ran.output("wait-for-training", "result").read_text()) == {"accuracy": 0.5}
    assert "Succeeded" in ran.output("wait-for-training", "report").read_text()


def test_an_expired_timeout_is_an_error_that_names_the_runs_phase(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    job = parse_job({"name": "digits", "framework": "plain", "script": "train.py"})
    handle = backend_of("local").start(RunRequest(job, read_sources(job, tmp_path)))
    try:

        @dsl.pipeline(name="test-too-long")
        def pipeline() -> None:
            wait_for_training(run="digits", timeout=1)

        ran = run_pipeline(pipeline, tmp_path / "out")
    finally:
        handle.cancel()
        handle.wait()
    assert ran.error is not None
    assert ": Running" in ran.log and "is still Running; give a longer timeout" in ran.log


def test_waiting_for_a_run_that_does_not_exist_ends_with_the_timeout(tmp_path: Path, home: Path) -> None:
    @dsl.pipeline(name="test-nothing")
    def pipeline() -> None:
        wait_for_training(run="nowhere", timeout=1)

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is not None
    assert "run 'nowhere' does not exist yet; waiting for it" in ran.log
    assert "Traceback" not in ran.log
