"""docs/kfp.md: which settings of a task KFP's local runner applies."""

from pathlib import Path

import pytest
from kfp import dsl

from stepset_kfp import distributed_train
from tests.kfp.pipelines import run_pipeline

SCRIPT = """\
import os, sys
from pathlib import Path

print("mode", os.environ.get("MODE"), "resume", os.environ.get("STEPSET_RESUME_FROM", "nothing"), flush=True)
checkpoint = Path(os.environ["STEPSET_CHECKPOINT_DIR"], "last.txt")
if not checkpoint.exists():
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_text("1")
    sys.exit("fails once")
"""


@pytest.mark.local
def test_variables_and_retries_of_the_task_apply_to_a_local_training(tmp_path: Path, home: Path) -> None:
    (tmp_path / "once.py").write_text(SCRIPT)
    checkpoints = tmp_path / "checkpoints"

    @dsl.pipeline(name="test-task-settings")
    def pipeline() -> None:
        task = distributed_train(
            base_dir=tmp_path, framework="plain", script="once.py", checkpoint_dir=str(checkpoints)
        )
        task.set_env_variable("MODE", "fast").set_retry(1, backoff_duration="0s").set_memory_limit("1Gi")

    with pytest.warns(UserWarning, match="memory_limit"):
        ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is None, ran.log
    assert "mode fast resume nothing" in ran.log
    assert f"mode fast resume {checkpoints}" in ran.log
