"""Train a small network on scikit-learn's digits with DeepSpeed ZeRO; runs under torchrun, deepspeed and mpirun.

stepset run examples/deepspeed/train.py --framework deepspeed --nodes 2 --procs-per-node 2 -- --stage 2
"""

import argparse
import json
import os
import socket
from importlib.util import find_spec
from pathlib import Path

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def set_launcher_variables() -> None:
    """Sets the variables that mpirun does not set, but other launchers do. DeepSpeed would otherwise treat processes
    with the same host name as one node, and refuse to start in a local run, where all nodes have the same name."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with socket.socket() as free:
        free.bind(("", 0))
        address, port = world.bcast((socket.gethostbyname(socket.gethostname()), free.getsockname()[1]))
    os.environ.update(RANK=str(world.Get_rank()), WORLD_SIZE=str(world.Get_size()))
    os.environ.update(LOCAL_RANK=os.environ["OMPI_COMM_WORLD_LOCAL_RANK"], MASTER_ADDR=address, MASTER_PORT=str(port))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=1, choices=[0, 1, 2], help="ZeRO stage")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--local_rank", type=int, help="set by the deepspeed launcher, like LOCAL_RANK")
    args = parser.parse_args()

    if not torch.cuda.is_available():
        # On CPUs DeepSpeed first compiles an extension for collectives in shared memory (minutes, needs a
        # compiler); gloo does the same work without it.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        set_launcher_variables()
    deepspeed.init_distributed()  # reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT
    rank, size = dist.get_rank(), dist.get_world_size()

    config = {
        "train_micro_batch_size_per_gpu": 1500 // size,
        # torch_adam: DeepSpeed's own Adam for CPUs is another extension to compile.
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": args.stage},
    }
    torch.manual_seed(rank)  # every rank starts with different weights; DeepSpeed's broadcast makes them equal
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if resume_from := os.environ.get("STEPSET_RESUME_FROM"):
        engine.load_checkpoint(resume_from)

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels = (digits[rank:1500:size, :64] / 16).to(engine.device)
    labels = digits[rank:1500:size, 64].long().to(engine.device)
    for step in range(1, args.steps + 1):
        loss = nn.functional.cross_entropy(engine(pixels), labels)
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 20 == 0:
            metrics = {"loss": round(loss.item(), 4)}
            line = {"stepset": {"step": step, "progress": step / args.steps, "metrics": metrics}}
            print(json.dumps(line), flush=True)
    if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
        engine.save_checkpoint(checkpoint_dir)  # every rank saves its part

    rank_sum = torch.tensor(rank + 1, device=engine.device)
    dist.all_reduce(rank_sum)
    mine = torch.cat([p.detach().flatten() for p in engine.module.parameters()])
    dist.broadcast(first := mine.clone(), src=0)
    equal = torch.tensor(int(torch.equal(first, mine)), device=engine.device)
    dist.all_reduce(equal, dist.ReduceOp.MIN)
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "parameters_equal": bool(equal.item()),
            "zero_stage": engine.zero_optimization_stage(),
            "loss": round(loss.item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
