"""Train a small network on scikit-learn's digits with MLX; on CPUs over the TCP ring or over MPI.

stepset run examples/mlx/train.py --framework mlx --nodes 2 --procs-per-node 2
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    # Without strict=True, each rank trains alone if the ranks do not find each other.
    ring = "MLX_HOSTFILE" in os.environ
    mpi = "OMPI_COMM_WORLD_SIZE" in os.environ
    world = mx.distributed.init(strict=ring or mpi, backend="ring" if ring else "mpi" if mpi else "any")
    rank, size = world.rank(), world.size()

    digits = np.loadtxt(DIGITS, delimiter=",")
    mine = mx.array(digits[rank:1500:size], mx.float32)
    pixels, labels = mine[:, :64] / 16, mine[:, 64].astype(mx.int32)
    mx.random.seed(0)  # the same initial weights in every rank; averaged gradients keep them equal
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    resume_from = os.environ.get("STEPSET_RESUME_FROM")
    if resume_from and (saved := Path(resume_from, "digits.safetensors")).exists():
        model.load_weights(str(saved))
    optimizer = optim.SGD(learning_rate=0.5)
    loss_and_gradients = nn.value_and_grad(
        model, lambda: nn.losses.cross_entropy(model(pixels), labels, reduction="mean")
    )
    for step in range(1, args.steps + 1):
        loss, gradients = loss_and_gradients()
        optimizer.update(model, nn.average_gradients(gradients, group=world))
        mx.eval(model.parameters(), loss)
        if rank == 0 and step % 20 == 0:
            metrics = {"loss": round(loss.item(), 4)}
            line = {"stepset": {"step": step, "progress": step / args.steps, "metrics": metrics}}
            print(json.dumps(line), flush=True)
    if rank == 0 and (checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR")):
        model.save_weights(str(Path(checkpoint_dir, "digits.safetensors")))

    rank_sum = mx.distributed.all_sum(mx.array(rank + 1), group=world)
    mine = mx.concatenate([p.flatten() for _, p in tree_flatten(model.parameters())])[None]
    gathered = mx.distributed.all_gather(mine, group=world)
    mx.eval(rank_sum, gathered)
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "parameters_equal": bool(mx.all(gathered == mine).item()),
            "loss": round(loss.item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


if __name__ == "__main__":
    main()
