"""The ranks' program in the tests of frameworks: runs PROGRAM, and prints numbered lines before and after it.

It is shipped into the pods with the examples. The lines at the end are the ones that could be lost, because the pod is
deleted at once.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys

BEFORE, AFTER = 20, 300
ABOUT = "about: "
"""Starts the line with the variables of a rank."""
_RANK = (
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MLX_RANK",
    "DMLC_TASK_ID",
    "JAX_PROCESS_ID",
    "LIGHTGBM_RANK",
    "RANK",
    "STEPSET_NODE_RANK",
)


def lines(when: str, count: int, rank: str) -> list[str]:
    """The lines that a rank prints."""
    return [f"{when} {number} of rank {rank}" for number in range(count)]


def print_lines(when: str, count: int) -> None:
    """Prints the lines, each in one write: some launchers give all ranks of a node one pipe."""
    rank = next(os.environ[name] for name in _RANK if name in os.environ)
    for line in lines(when, count, rank):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def about_rank() -> str:
    """Returns the number of this rank's cores, and its values of the variables that REPORT names, as JSON."""
    names = os.environ.get("REPORT", "").split()
    found = {"cores": len(os.sched_getaffinity(0)), **{name: os.environ.get(name) for name in names}}
    return json.dumps(found)


if __name__ == "__main__":
    program = os.environ["PROGRAM"]
    if "REPORT" in os.environ:
        sys.stdout.write(f"{ABOUT}{about_rank()}\n")
    print_lines("before", BEFORE)
    if program.endswith(".py"):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise
    else:
        # Hydra's processes communicate with it through an inherited file descriptor.
        subprocess.run([program], check=True, close_fds=False)
    print_lines("after", AFTER)
