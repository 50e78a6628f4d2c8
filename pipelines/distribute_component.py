"""Run a custom component on two nodes with two processes each.

python pipelines/distribute_component.py HOME
"""

# KFP evaluates annotations, so they must not be strings. Do not add `from __future__ import annotations` here.
import sys
from pathlib import Path

from digits_retrain import CODE, IMAGE, VOLUME, prepare
from kfp import dsl, kubernetes, local

from stepset_kfp import distribute


@dsl.component(base_image=IMAGE, install_kfp_package=False, embedded_artifact_path=str(CODE))
def mean_image(data: str, metrics: dsl.Output[dsl.Metrics]) -> float:
    """Returns the mean brightness of the training digits. Each rank adds up its part of the pixels."""
    from pathlib import Path

    import torch.distributed as dist
    from model import read_digits

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pixels, _ = read_digits(Path(data), "train")
    mine = pixels[rank::world_size].double().sum()
    dist.all_reduce(mine)
    dist.destroy_process_group()
    metrics.log_metric("world_size", world_size)
    return mine.item() / pixels.numel()


mean_image_of_many = distribute(mean_image, num_nodes=2, procs_per_node=2, log_ranks="all", shared_dir=VOLUME)


@dsl.pipeline(name="distribute-component")
def distribute_component(home: str = VOLUME, claim: str = "digits"):
    """Writes the data, and computes the mean brightness on two nodes."""
    prepared = prepare(home=home, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    prepared.set_caching_options(False)
    kubernetes.mount_pvc(prepared, claim, VOLUME)
    kubernetes.mount_pvc(mean_image_of_many(data=prepared.outputs["data"]), claim, VOLUME)


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-home").resolve()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(home / "outputs"))
    distribute_component(home=str(home))
