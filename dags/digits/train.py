"""Trains the digits network with DistributedDataParallel.

This is an ordinary script for torchrun, with a few lines for stepset. It also runs without stepset:

torchrun --nproc-per-node 2 dags/digits/train.py --data digits.npz
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from model import new_model, read_digits, score
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def report(**progress: object) -> None:
    """Prints a line that stepset shows as the progress of the run."""
    sys.stdout.write(json.dumps({"stepset": progress}) + "\n")
    sys.stdout.flush()


def starting_point(given: str) -> tuple[dict | None, bool]:
    """Returns the checkpoint to load, and whether the training resumes from it.

    If the training does not resume, the function returns the checkpoint for a warm start. If there is no warm start
    either, the function returns None instead of a checkpoint.
    """
    if own := os.environ.get("STEPSET_RESUME_FROM"):  # set if checkpoint_dir contains checkpoints
        return torch.load(Path(own, "last.pt"), map_location="cpu"), True
    return (torch.load(given, map_location="cpu"), False) if given else (None, False)


def save(checkpoint: Path, state: dict) -> None:
    """Writes a checkpoint atomically."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, unfinished := checkpoint.with_suffix(".new"))
    unfinished.replace(checkpoint)


def main() -> None:
    """Trains the network. Every rank runs this function."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="per rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--start-from",
        default=os.environ.get("STEPSET_WARM_START", ""),  # set by the Airflow operator's warm_start
        help="checkpoint of an earlier model; default: random weights",
    )
    args = parser.parse_args()
    checkpoint = Path(os.environ.get("STEPSET_CHECKPOINT_DIR", "."), "last.pt")

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    train = TensorDataset(*read_digits(args.data, "train"))
    test = read_digits(args.data, "test")
    sampler = DistributedSampler(train, shuffle=True, seed=0)  # each rank reads a different part of the data
    loader = DataLoader(train, args.batch_size, sampler=sampler)

    torch.manual_seed(0)
    model = new_model()
    saved, resumed = starting_point(args.start_from)
    first_epoch, history = 0, {"loss": [], "accuracy": []}
    if saved:
        model.load_state_dict(saved["model"])
    if saved and resumed:
        first_epoch, history = saved["epoch"], saved["history"]
    start = "own checkpoint" if resumed else "warm start" if saved else "random weights"
    print(f"{len(sampler)} of {len(train)} digits are mine, start: {start}", flush=True)
    before = score(model, *test)

    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(pixels), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            history["loss"].append(round(total.item() / len(loader) / world_size, 4))
            history["accuracy"].append(score(model, *test)["accuracy"])
            metrics = {name: values[-1] for name, values in history.items()}
            report(step=epoch + 1, progress=(epoch + 1) / args.epochs, metrics=metrics)
            save(checkpoint, {"model": model.state_dict(), "epoch": epoch + 1, "history": history})

    if rank == 0:
        result = {
            "checkpoint": str(checkpoint.resolve()),
            "world_size": world_size,
            "start": start,
            "started_from": args.start_from,
            "before": before,
            "history": history,
            **score(model, *test),
        }
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(f"accuracy {result['accuracy']:.2%} on {len(test[1])} held-out digits", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
