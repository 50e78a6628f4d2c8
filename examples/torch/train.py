"""Train a small network on scikit-learn's digits with DistributedDataParallel: the reference example.

stepset run examples/torch/train.py --nodes 2 --procs-per-node 2 -- --epochs 3
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels, labels = digits[:, :64] / 16, digits[:, 64].long()
    train = TensorDataset(pixels[:1500], labels[:1500])
    sampler = DistributedSampler(train)  # each rank reads its share
    loader = DataLoader(train, args.batch_size, sampler=sampler)

    torch.manual_seed(rank)  # every rank starts with different weights; DDP's broadcast makes them equal
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = 0
    resume_from = os.environ.get("STEPSET_RESUME_FROM")  # if a checkpoint exists
    if resume_from and (last := Path(resume_from, "last.pt")).exists():
        saved = torch.load(last, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"]

    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        if rank == 0:
            if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
                state = {"epoch": epoch + 1, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, unfinished := Path(checkpoint_dir, "last.pt.new"))
                unfinished.replace(Path(checkpoint_dir, "last.pt"))  # atomic
            metrics = {"loss": round(loss.item(), 4)}
            progress = {"step": epoch + 1, "progress": (epoch + 1) / args.epochs, "metrics": metrics}
            print(json.dumps({"stepset": progress}), flush=True)  # after the checkpoint of this step

    # Every rank adds rank + 1, and compares its weights with rank 0's: no rank trained alone.
    rank_sum = torch.tensor(rank + 1, device=device)
    dist.all_reduce(rank_sum)
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    dist.broadcast(first := mine.clone(), src=0)
    equal = torch.tensor(int(torch.equal(first, mine)), device=device)
    dist.all_reduce(equal, dist.ReduceOp.MIN)
    if rank == 0:
        guess = model.module(pixels[1500:].to(device)).argmax(1).cpu()  # the held-out digits
        result = {
            "world_size": size,
            "rank_sum": rank_sum.item(),
            "parameters_equal": bool(equal.item()),
            "first_epoch": first_epoch,
            "accuracy": round((guess == labels[1500:]).float().mean().item(), 4),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
