"""A custom TorchTune recipe: a small Llama learns scikit-learn's digits as sequences, data-parallel.

framework: {kind: torchtune, recipe: recipe.py, config: config.yaml}
args: [steps=60]          # any entry of the config can be overridden

TorchTune's own recipes need a GPU and a model from a hub. This recipe is started in the same way, and needs neither.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch.nn.parallel import DistributedDataParallel
from torchtune import config

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


@config.parse
def main(cfg: DictConfig) -> None:
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=",")).long()
    words = torch.cat([digits[:, :64], digits[:, 64:] + 17], dim=1)
    torch.manual_seed(rank)  # every rank starts with different weights; DDP's broadcast makes them equal
    model = DistributedDataParallel(config.instantiate(cfg.model).to(device))
    optimizer = config.instantiate(cfg.optimizer, model.parameters())
    loss_of = config.instantiate(cfg.loss)
    resume_from = os.environ.get("STEPSET_RESUME_FROM")
    if resume_from and (saved := Path(resume_from, "llama.pt")).exists():
        model.module.load_state_dict(torch.load(saved, map_location=device))

    for step in range(1, cfg.steps + 1):
        rows = (torch.arange(cfg.batch_size) * size + rank + step * size * cfg.batch_size) % len(words)
        batch = words[rows].to(device)
        scores = model(batch[:, :-1])  # the next token, 64 times
        loss = loss_of(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            metrics = {"loss": round(loss.item(), 4)}
            progress = {"step": step, "progress": step / cfg.steps, "metrics": metrics}
            print(json.dumps({"stepset": progress}), flush=True)
    if rank == 0 and (checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR")):
        torch.save(model.module.state_dict(), Path(checkpoint_dir, "llama.pt"))

    rank_sum = torch.tensor(rank + 1, device=device)
    dist.all_reduce(rank_sum)
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    dist.broadcast(first := mine.clone(), src=0)
    equal = torch.tensor(int(torch.equal(first, mine)), device=device)
    dist.all_reduce(equal, dist.ReduceOp.MIN)
    if rank == 0:
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "parameters_equal": bool(equal.item()),
            "loss": round(loss.item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
