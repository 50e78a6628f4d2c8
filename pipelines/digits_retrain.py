"""Retrain a digit classifier, and promote it only if it beats the last one.

    prepare -> train (2 nodes x 2 processes, PyTorch DDP) -> evaluate -> promote

Each run starts from the last promoted model (a warm start). The training code is in dags/digits. It is packed and
stored in the pipeline.

All steps and training pods use the directory `home`. On a laptop, `home` is any directory. On a cluster, it is a
directory of the PersistentVolumeClaim `claim`, which every task mounts at VOLUME. README.md describes how to submit the
pipeline to a cluster. To run it on this machine:

    python pipelines/digits_retrain.py HOME
"""

# KFP evaluates annotations, so they must not be strings. Do not add `from __future__ import annotations` here.
import os
import sys
from pathlib import Path
from typing import NamedTuple

from kfp import dsl, kubernetes, local

from stepset_kfp import distributed_train

CODE = Path(__file__).resolve().parent.parent / "dags" / "digits"
IMAGE = os.environ.get("DIGITS_IMAGE") or "example/digits-python:1"
"""The image of the steps and the training pods, with Python, PyTorch, scikit-learn and KFP (pipelines/Containerfile).

A local run does not use the image."""
VOLUME = "/shared"
"""The directory at which the tasks and the training pods mount the claim."""


@dsl.component(base_image=IMAGE, install_kfp_package=False, embedded_artifact_path=str(CODE))
def prepare(home: str, run: str) -> NamedTuple(
    "Prepared", [("data", str), ("last_good", str), ("checkpoint_dir", str)]
):
    """Writes the data, and finds the last promoted model."""
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
    """Returns whether the new model is better than the last promoted model.

    Both models classify the same test digits, on which no rank has trained.

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
    """Replaces the last promoted model by the new model."""
    import shutil
    from pathlib import Path

    model = Path(home, "models", "last_good.pt")
    model.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(candidate.path, unfinished := model.with_suffix(".new"))
    unfinished.replace(model)
    print(f"promoted: {model}")
    return str(model)


@dsl.pipeline(name="digits-retrain")
def digits_retrain(home: str = VOLUME, claim: str = "digits", epochs: int = 8):
    """Trains a model, evaluates it, and promotes it if it is better than the last promoted model."""
    prepared = prepare(home=home, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    kubernetes.mount_pvc(prepared, claim, VOLUME)
    # The content of `home` is not an input. Therefore KFP's cache does not notice a change of this content.
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
    kubernetes.mount_pvc(train, claim, VOLUME)
    evaluated = evaluate(
        candidate=train.outputs["model"], data=prepared.outputs["data"], last_good=prepared.outputs["last_good"]
    )
    evaluated.set_caching_options(False)
    kubernetes.mount_pvc(evaluated, claim, VOLUME)
    with dsl.If(evaluated.outputs["Output"] == True):  # noqa: E712  # KFP converts the comparison to a condition
        promoted = promote(candidate=train.outputs["model"], home=home)
        promoted.set_caching_options(False)
        kubernetes.mount_pvc(promoted, claim, VOLUME)


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-home").resolve()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(home / "outputs"))
    digits_retrain(home=str(home))
