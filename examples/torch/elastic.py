"""Training that continues while nodes join and leave: every new world loads the step counter from a checkpoint.

framework: {kind: torch, elastic: {min_nodes: 1, max_nodes: 2, max_restarts: 3}}

torchrun ends and restarts every rank when a node is lost or joins, so the checkpoint contains all persistent state.
"""

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# scikit-learn's digits: 1,797 rows of 64 pixels and a label. Importing all of it takes longer than this training does.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"

RUN = os.environ.get("STEPSET_RUN", "")
if "STEPSET_CHECKPOINT_DIR" not in os.environ:
    sys.exit("STEPSET_CHECKPOINT_DIR: not set; give checkpoint_dir in the job file, or each new world starts at 0")
CHECKPOINT = Path(os.environ["STEPSET_CHECKPOINT_DIR"], "elastic.pt")


def latest() -> dict:
    """Returns this run's checkpoint, which rank 0 reads and broadcasts so that all ranks start from the same one."""
    saved = {"run": RUN, "step": 0, "worlds": []}
    if dist.get_rank() == 0 and CHECKPOINT.exists():
        found = torch.load(CHECKPOINT)
        saved = found if found["run"] == RUN else saved
    box = [saved]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pause per step, to have time to lose a node")
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")

    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels, labels = digits[:, :64] / 16, digits[:, 64].long()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 10).to(device))
    saved = latest()
    if "model" in saved:
        model.module.load_state_dict(saved["model"])
    first_step = saved["step"]
    # One entry for each world of this run: its first step and its number of ranks.
    worlds = [*saved["worlds"], {"from_step": first_step, "world_size": size}]

    for step in range(first_step, args.steps):
        # The step selects the next 480 images, the rank its share of them, for any world size.
        batch = (torch.arange(480) + 480 * step)[rank::size] % len(pixels)
        loss = nn.functional.cross_entropy(model(pixels[batch].to(device)), labels[batch].to(device))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
        done = step + 1
        if rank == 0 and (done % args.save_every == 0 or done == args.steps):
            state = {"run": RUN, "step": done, "worlds": worlds, "model": model.module.state_dict()}
            torch.save(state, CHECKPOINT.with_suffix(".new"))
            CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)
            metrics = {"loss": round(loss.item(), 4), "world_size": size}
            progress = {"step": done, "progress": done / args.steps, "metrics": metrics}
            print(json.dumps({"stepset": progress}), flush=True)
        time.sleep(args.step_seconds)

    rank_sum = torch.tensor(rank + 1, device=device)
    dist.all_reduce(rank_sum)
    if rank == 0:
        guess = model.module(pixels.to(device)).argmax(1).cpu()
        accuracy = round((guess == labels).float().mean().item(), 4)
        result = {"steps": args.steps, "worlds": worlds, "world_size": size, "rank_sum": rank_sum.item()}
        result["accuracy"] = accuracy
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
