"""The program of the tests of frameworks in pods: runs what PROGRAM names, and prints numbered lines before and after.

Shipped with the examples into the pods. The lines at the end are those that a pod which is deleted at once would keep
to itself.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

BEFORE, AFTER = 20, 300
_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MLX_RANK", "DMLC_TASK_ID", "JAX_PROCESS_ID", "RANK", "STEPSET_NODE_RANK")


def lines(when: str, count: int, rank: str) -> list[str]:
    """What a rank prints."""
    return [f"{when} {number} of rank {rank}" for number in range(count)]


def say(when: str, count: int) -> None:
    """Prints it, each line in one piece: some launchers give all ranks of a node one pipe."""
    rank = next(os.environ[name] for name in _RANK if name in os.environ)
    for line in lines(when, count, rank):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    program = os.environ["PROGRAM"]
    say("before", BEFORE)
    if program.endswith(".py"):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise
    else:
        # Hydra's processes speak with it through a file descriptor they inherit.
        subprocess.run([program], check=True, close_fds=False)
    say("after", AFTER)
