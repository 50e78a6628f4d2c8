"""Train a small network on scikit-learn's digits with DistributedDataParallel: the reference example.

stepset run examples/torch/train.py --nodes 2 --procs-per-node 2 -- --epochs 3
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def report(**progress: object) -> None:
    # The line and its end in one write, so that lines of several ranks cannot mix.
    sys.stdout.write(json.dumps({"stepset": progress}) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")

    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    train, held_out = slice(0, 1500), slice(1500, None)
    dataset = TensorDataset(images[train], labels[train])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler)

    torch.manual_seed(rank)  # every rank starts with other weights: only DDP's broadcast makes them equal
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    run, first_epoch = os.environ.get("STEPSET_RUN", ""), 0
    checkpoint_dir, resume_from = os.environ.get("STEPSET_CHECKPOINT_DIR"), os.environ.get("STEPSET_RESUME_FROM")
    own = Path(checkpoint_dir, "checkpoint.pt") if checkpoint_dir else None
    # A restarted run goes on from its own checkpoint; a first one from where the job says, or from nothing.
    for source in (own, Path(resume_from, "checkpoint.pt") if resume_from else None):
        if source and source.exists():
            saved = torch.load(source, map_location=device)
            if source != own or saved["run"] == run:
                model.module.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["optimizer"])
                first_epoch = saved["epoch"] if source == own else 0
                break

    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        if rank == 0:
            report(step=epoch + 1, progress=(epoch + 1) / args.epochs, metrics={"loss": loss.item()})
            if own:
                state = {"run": run, "epoch": epoch + 1}
                state |= {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, own.with_suffix(".new"))
                own.with_suffix(".new").replace(own)
    ...
