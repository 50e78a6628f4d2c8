"""Train with several learning rates, one after another (`parallelism=1`), and select the best model.

prepare -> train for each rate (dsl.ParallelFor) -> best (dsl.Collected)

python pipelines/digits_sweep.py HOME
"""

# KFP evaluates annotations, so they must not be strings. Do not add `from __future__ import annotations` here.
import sys
from pathlib import Path
from typing import List  # noqa: UP035  # KFP supports only typing.List

from digits_retrain import IMAGE, VOLUME, prepare
from kfp import dsl, kubernetes, local

from stepset_kfp import distributed_train


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def best(results: List[dict]) -> dict:  # noqa: UP006
    """Returns the result with the highest accuracy."""
    chosen = max(results, key=lambda result: (result["accuracy"], -result["loss"]))
    print(f"best of {len(results)}: {chosen['accuracy']:.2%}, {chosen['checkpoint']}")
    return chosen


@dsl.pipeline(name="digits-sweep")
def digits_sweep(
    home: str = VOLUME,
    claim: str = "digits",
    epochs: int = 4,
    rates: List[float] = [0.01, 0.05],  # noqa: B006, UP006
):
    """Trains one model for each learning rate, and selects the result with the highest accuracy."""
    prepared = prepare(home=home, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    prepared.set_caching_options(False)
    kubernetes.mount_pvc(prepared, claim, VOLUME)
    with dsl.ParallelFor(rates, parallelism=1) as rate:
        train = distributed_train(
            framework="torch",
            num_nodes=1,
            procs_per_node=2,
            image=IMAGE,
            code="../dags/digits",
            script="train.py",
            # The arguments contain no output of another task, because KFP 2.17's local runner would replace such an
            # output by the item of the loop.
            args=["--data", f"{home}/digits.npz", "--epochs", epochs, "--lr", rate],
            checkpoint_dir=f"{home}/sweep/{rate}",
        ).after(prepared)
        kubernetes.mount_pvc(train, claim, VOLUME)
    best(results=dsl.Collected(train.outputs["result"]))


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-home").resolve()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(home / "outputs"))
    digits_sweep(home=str(home))
