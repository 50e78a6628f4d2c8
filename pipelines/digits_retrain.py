"""Retrain a digit classifier, and promote it only if it beats the last one.

    prepare -> train (2 nodes x 2 processes, PyTorch DDP) -> evaluate -> promote

Each run starts from the last promoted model (a warm start). The training code is that of dags/digits, stored in
the pipeline. Every step and training pod uses the directory `home`: any directory on a laptop, a volume on a cluster.

    python pipelines/digits_retrain.py HOME
"""

# KFP evaluates annotations, so they must not be strings: no `from __future__ import annotations`.
import sys
from pathlib import Path
from typing import NamedTuple

from kfp import dsl, local

from stepset_kfp import distributed_train

CODE = Path(__file__).resolve().parent.parent / "dags" / "digits"
IMAGE = "example/digits-python:1"
"""Python with PyTorch, scikit-learn and KFP; used when the steps run in pods."""


@dsl.component(base_image=IMAGE, install_kfp_package=False, embedded_artifact_path=str(CODE))
def prepare(home: str, run: str) -> NamedTuple(
    "Prepared", [("data", str), ("last_good", str), ("checkpoint_dir", str)]
):
    """Writes the data, and looks up the last good model."""
    from pathlib import Path

    from model import write_digits

    data = Path(home, "digits.npz")
    count = write_digits(data)
    last_good = Path(home, "models", "last_good.pt")
    start = str(last_good) if last_good.exists() else ""
    print(f"{count['train']} digits to train on, {count['test']} to test with; last good model: {start or None}")
    return (str(data), start, str(Path(home, "runs", run)))


@dsl.component(base_image=IMAGE, install_kfp_package=False, embedded_artifact_path=str(CODE))
def evaluate(candidate: dsl.Input[dsl.Model], data: str, last_good: str, metrics: dsl.Output[dsl.Metrics]) -> bool:
    """Returns whether the new model is better than the last good one, on the same digits, which no rank trained on.

    The component has no other output parameter, because KFP 2.17's local runner supports only one for dsl.If.
    """
    from pathlib import Path

    from model import load_model, read_digits, score

    test = read_digits(Path(data), "test")
    new = score(load_model(Path(candidate.path)), *test)
    old = score(load_model(Path(last_good)), *test) if last_good else None
    for name, value in new.items():
        metrics.log_metric(name, value)
    better = old is None or (new["accuracy"], -new["loss"]) > (old["accuracy"], -old["loss"])
    print(f"candidate {new}, last good {old}: {'better' if better else 'not better'}")
    return better


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promote(candidate: dsl.Input[dsl.Model], home: str) -> str:
    """Replaces the last good model by the new one."""
    import shutil
    from pathlib import Path

    model = Path(home, "models", "last_good.pt")
    model.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(candidate.path, unfinished := model.with_suffix(".new"))
    unfinished.replace(model)
    print(f"promoted: {model}")
    return str(model)


@dsl.pipeline(name="digits-retrain")
def digits_retrain(home: str, epochs: int = 8):
    """The pipeline."""
    prepared = prepare(home=home, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    # The content of `home` is not an input, so KFP's cache does not notice that it has changed.
    prepared.set_caching_options(False)
    train = distributed_train(
        framework="torch",
        num_nodes=2,
        procs_per_node=2,
        image=IMAGE,
        code="../dags/digits",
        script="train.py",
        args=[
            *("--data", prepared.outputs["data"]),
            *("--epochs", epochs),
            *("--start-from", prepared.outputs["last_good"]),
        ],
        checkpoint_dir=prepared.outputs["checkpoint_dir"],
        log_ranks="all",
    )
    evaluated = evaluate(
        candidate=train.outputs["model"], data=prepared.outputs["data"], last_good=prepared.outputs["last_good"]
    )
    evaluated.set_caching_options(False)
    with dsl.If(evaluated.outputs["Output"] == True):  # noqa: E712  # becomes a condition of the pipeline
        promoted = promote(candidate=train.outputs["model"], home=home)
        promoted.set_caching_options(False)


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-home").resolve()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(home / "outputs"))
    digits_retrain(home=str(home))
