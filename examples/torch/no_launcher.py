"""Torch without a launcher: stepset starts the script once per rank and sets the variables of `init_process_group`.

framework: {kind: torch, launcher: none}
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def main() -> None:
    on_gpu = torch.cuda.is_available()
    # MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE come from the environment (init_method "env://", the default).
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size, local_rank = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels = (digits[rank:1500:size, :64] / 16).to(device)
    labels = digits[rank:1500:size, 64].long().to(device)
    torch.manual_seed(0)  # the same initial weights in every rank; averaged gradients keep them equal
    model = nn.Linear(64, 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(1, 101):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            line = {"stepset": {"step": step, "progress": step / 100, "metrics": {"loss": round(loss.item(), 4)}}}
            print(json.dumps(line), flush=True)

    rank_sum = torch.tensor(rank + 1, device=device)
    dist.all_reduce(rank_sum)
    places: list = [None] * size
    dist.all_gather_object(places, (local_rank, model.weight.sum().item()))
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "local_ranks": [local for local, _ in places],
            "parameters_equal": len({total for _, total in places}) == 1,
            "loss": round(loss.item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
