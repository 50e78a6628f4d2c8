"""Fully sharded training: every rank holds a part of each weight; any world size can read the sharded checkpoints.

stepset run examples/torch/fsdp.py --nodes 2 --procs-per-node 2
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if on_gpu else "cpu"

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels = (digits[rank:1500:size, :64] / 16).to(device)
    labels = digits[rank:1500:size, 64].long().to(device)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    mesh = init_device_mesh(device, (size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    resume_from = os.environ.get("STEPSET_RESUME_FROM")
    if resume_from and Path(resume_from, ".metadata").exists():
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=resume_from)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)

    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            metrics = {"loss": round(loss.item(), 4)}
            line = {"stepset": {"step": step, "progress": step / args.steps, "metrics": metrics}}
            print(json.dumps(line), flush=True)
    if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=checkpoint_dir)

    rank_sum = torch.tensor(rank + 1, device=device)
    dist.all_reduce(rank_sum)
    held = torch.tensor(sum(p.to_local().numel() for p in model.parameters()), device=device)
    shards = [torch.zeros_like(held) for _ in range(size)]
    dist.all_gather(shards, held)
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "parameters": sum(p.numel() for p in model.parameters()),
            "held_by_rank": [shard.item() for shard in shards],
            "loss": round(loss.item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
