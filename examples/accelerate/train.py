"""Train on scikit-learn's digits with Hugging Face Accelerate.

stepset run examples/accelerate/train.py --nodes 2 --procs-per-node 2 --env ACCELERATE_USE_CPU=true
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# scikit-learn's digits: 1,797 rows of 64 pixels and a label.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    accelerator = Accelerator()  # joins torchrun's process group; on CPUs, only if ACCELERATE_USE_CPU=true
    if accelerator.num_processes != int(os.environ["WORLD_SIZE"]):
        raise SystemExit("this rank trains alone; on CPUs set ACCELERATE_USE_CPU=true in the job's env")

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels, labels = digits[:, :64] / 16, digits[:, 64].long()
    loader = DataLoader(TensorDataset(pixels[:1500], labels[:1500]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # each rank reads its share

    first_epoch = 0
    if resume_from := os.environ.get("STEPSET_RESUME_FROM"):
        accelerator.load_state(resume_from)
        first_epoch = json.loads(Path(resume_from, "epoch.json").read_text())
    for epoch in range(first_epoch, args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
            accelerator.save_state(checkpoint_dir)  # every rank must call this method
            if accelerator.is_main_process:
                Path(checkpoint_dir, "epoch.json").write_text(str(epoch + 1))
        if accelerator.is_main_process:
            progress = {"step": epoch + 1, "progress": (epoch + 1) / args.epochs, "metrics": {"loss": loss.item()}}
            print(json.dumps({"stepset": progress}), flush=True)

    # Every rank adds rank + 1. The sum shows whether all ranks have trained together.
    rank_sum = accelerator.reduce(torch.tensor(accelerator.process_index + 1, device=accelerator.device))
    if accelerator.is_main_process:
        guess = accelerator.unwrap_model(model)(pixels[1500:].to(accelerator.device)).argmax(1).cpu()
        result = {
            "world_size": accelerator.num_processes,
            "rank_sum": int(rank_sum),
            "first_epoch": first_epoch,
            "accuracy": round((guess == labels[1500:]).float().mean().item(), 4),
        }
        Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))
    accelerator.end_training()


if __name__ == "__main__":
    main()
