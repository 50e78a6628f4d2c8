"""Train a small network on scikit-learn's digits with JAX: one process per node, one mesh over all devices.

stepset run examples/jax/train.py --framework jax --nodes 2
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"

STEPS = 60


def loss_of(weights: dict, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(pixels @ weights["w1"] + weights["b1"])
    scores = jax.nn.log_softmax(hidden @ weights["w2"] + weights["b2"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


@jax.jit
def train_step(weights: dict, pixels: jax.Array, labels: jax.Array) -> tuple[dict, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, pixels, labels)
    return jax.tree.map(lambda w, g: w - 0.5 * g, weights, gradients), loss


def main() -> None:
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        # By itself JAX reads only the address, not the number of processes or their index.
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"],
            int(os.environ["JAX_NUM_PROCESSES"]),
            int(os.environ["JAX_PROCESS_ID"]),
            # Otherwise JAX queries Kubernetes for the same values, and fails if it has no permission.
            cluster_detection_method="deactivate",
        )
    rank, size = jax.process_index(), jax.process_count()

    mesh = Mesh(np.array(jax.devices()), ("batch",))  # jax.devices() is every device of every process
    split, same = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
    digits = np.loadtxt(DIGITS, delimiter=",")
    count = 1440 // size  # each process contributes its part of one global batch
    mine = slice(rank * count, (rank + 1) * count)
    pixels = jax.make_array_from_process_local_data(split, np.float32(digits[mine, :64] / 16))
    labels = jax.make_array_from_process_local_data(split, np.int32(digits[mine, 64]))

    random = np.random.default_rng(0)  # the same start in every process
    start = {"w1": random.normal(0, 0.1, (64, 64)), "b1": np.zeros(64)}
    start |= {"w2": random.normal(0, 0.1, (64, 10)), "b2": np.zeros(10)}
    weights = jax.tree.map(lambda w: jax.make_array_from_process_local_data(same, np.float32(w)), start)
    for step in range(1, STEPS + 1):
        weights, loss = train_step(weights, pixels, labels)  # the compiler adds the all-reduce of the gradients
        if step % 20 == 0:
            loss_now = round(float(loss), 4)  # every process takes part in reading a global value
            if rank == 0:
                line = {"step": step, "progress": step / STEPS, "metrics": {"loss": loss_now}}
                print(json.dumps({"stepset": line}), flush=True)

    ranks = multihost_utils.process_allgather(np.array([rank + 1]))
    copies = multihost_utils.process_allgather(np.asarray(weights["w1"].addressable_data(0))).reshape(size, -1)
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": int(ranks.sum()),
            "devices": jax.device_count(),
            "parameters_equal": bool((copies == copies[0]).all()),
            "loss": loss_now,
        }
        if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
            np.savez(Path(checkpoint_dir, "weights.npz"), **{k: np.asarray(w) for k, w in weights.items()})
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


if __name__ == "__main__":
    main()
