"""Trains in steps until a file exists. The first argument determines which ranks need longer. Run by tests."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CASE, END = sys.argv[1:]
STEP, LONGER = 0.2, 0.2


def needs_longer(step: int) -> bool:
    """Returns whether this rank needs longer for a step."""
    if CASE == "one":
        return RANK == 2
    if CASE == "sometimes":
        return RANK == 2 and step % 5 == 0
    if CASE == "in_turn":
        return (1, 3)[step % 2] == RANK
    return False


dist.init_process_group("gloo")
RANK = dist.get_rank()
step, goes_on = 0, torch.ones(1)
while goes_on.item():
    time.sleep(STEP + (LONGER if needs_longer(step) else 0.0))
    goes_on[0] = float(not Path(END).exists()) if RANK == 0 else 0.0
    dist.all_reduce(goes_on)
    step += 1
