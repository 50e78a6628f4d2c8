"""Softmax regression on scikit-learn's digits, data-parallel by MPI's all-reduce.

framework: mpi            # mpirun starts this script on every node; the same works for any MPI program
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from mpi4py import MPI

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"

STEPS = 100


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    started = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or size)
    if size != started:  # mpi4py does not use mpirun's MPI library: every rank would train alone, and succeed
        sys.exit(f"mpirun started {started} ranks, {MPI.Get_library_version().split(',')[0]} sees {size}")
    digits = np.loadtxt(DIGITS, delimiter=",")
    pixels, labels = digits[rank:1500:size, :64] / 16, np.eye(10)[digits[rank:1500:size, 64].astype(int)]
    weights, losses, gradient = np.zeros((64, 10)), np.zeros(1), np.zeros((64, 10))
    for step in range(1, STEPS + 1):
        scores = np.exp(pixels @ weights)
        guess = scores / scores.sum(axis=1, keepdims=True)
        world.Allreduce(pixels.T @ (guess - labels), gradient)
        world.Allreduce(-np.log((guess * labels).sum(axis=1)).sum(keepdims=True), losses)
        weights -= 1.0 / 1500 * gradient
        if rank == 0 and step % 20 == 0:
            line = {"step": step, "progress": step / STEPS, "metrics": {"loss": round(losses[0] / 1500, 4)}}
            print(json.dumps({"stepset": line}), flush=True)

    rank_sum = world.allreduce(rank + 1)
    gathered = world.gather((MPI.Get_processor_name(), weights.tobytes()))
    if rank == 0:
        right = (digits[1500:, :64] @ weights).argmax(axis=1) == digits[1500:, 64]
        result = {
            "world_size": size,
            "rank_sum": rank_sum,
            "hosts": sorted({host for host, _ in gathered}),
            "parameters_equal": all(theirs == weights.tobytes() for _, theirs in gathered),
            "accuracy": round(float(right.mean()), 4),
            "library": MPI.Get_library_version().split(",")[0].strip("\0 "),
        }
        if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
            np.save(Path(checkpoint_dir, "weights.npy"), weights)
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


if __name__ == "__main__":
    main()
