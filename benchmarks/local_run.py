"""Compares `stepset run` with torchrun. Both run the same script."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.paired import Row, paired

SCRIPT = Path(__file__).parent / "scripts" / "ddp.py"
BIN = Path(sys.executable).parent
# stepset itself sets these variables. The benchmark sets the variables for torchrun. Therefore stepset and torchrun use
# the same number of threads.
_ENV = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def _torchruns(nodes: int, port: int) -> Callable[[], None]:
    def run() -> None:
        processes = [
            subprocess.Popen(
                [BIN / "torchrun", f"--nnodes={nodes}", "--nproc-per-node=2", f"--node-rank={rank}",
                 "--master-addr=127.0.0.1", f"--master-port={port}", SCRIPT],
                env=_ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for rank in range(nodes)
        ]  # fmt: skip
        if any(process.wait() for process in processes):
            raise RuntimeError("torchrun failed")

    return run


def _stepset(nodes: int, home: str) -> Callable[[], None]:
    def run() -> None:
        subprocess.run(
            [BIN / "stepset", "run", SCRIPT, "--nodes", str(nodes), "--procs-per-node", "2"],
            env={**_ENV, "STEPSET_HOME": home}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip

    return run


def rows(runs: int = 5) -> list[Row]:
    """Returns two rows. The first row is for one node, and the second row is for two nodes."""
    result = []
    with tempfile.TemporaryDirectory() as home:
        for nodes in (1, 2):
            pair = paired(_stepset(nodes, home), _torchruns(nodes, 29481), runs)
            wall, cpu, extra = pair.ratio("wall"), pair.ratio("cpu"), pair.difference("wall")
            over = statistics.median(o.wall - 1.02 * t.wall for o, t in zip(pair.ours, pair.theirs, strict=True))
            result.append(
                Row(
                    f"`stepset run`, {nodes} x 2 processes, against torchrun",
                    f"{wall:.2f} x wall ({extra:+.2f} s), {cpu:.2f} x CPU",
                    "<= 1.02 x + 0.3 s",
                    over <= 0.3,
                )
            )
    return result
