"""Compares two commands that print the output of a local run of 16 ranks.

One command is `stepset logs`. The other command is `cat` with the log files of the ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import Row, paired

BIN = Path(sys.executable).parent
_PRINTER = """
import os, sys
line = "rank " + os.environ["RANK"] + " " + "x" * 80 + "\\n"
for first in range(0, 20000, 1000):
    sys.stdout.write(line * 1000)
"""


def rows(runs: int = 7) -> list[Row]:
    """Returns one row with the ratio of the lines per second, and the command's time minus its start-up time."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "printer.py"
        script.write_text(_PRINTER, encoding="utf-8")
        env = {**os.environ, "STEPSET_HOME": directory}
        subprocess.run(
            [BIN / "stepset", "run", script, "--nodes", "4", "--procs-per-node", "4", "--name", "printer",
             "--set", "framework.launcher=none"],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        files = sorted(Path(directory).glob("runs/*/ranks/*.log"))
        if len(files) != 16:
            raise RuntimeError(f"found {len(files)} rank logs, expected 16")

        def ours() -> None:
            subprocess.run([BIN / "stepset", "logs", "printer"], env=env, stdout=subprocess.DEVNULL, check=True)

        def theirs() -> None:
            subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)

        pair = paired(ours, theirs, runs)
        start_up = paired([str(BIN / "stepset"), "logs", "--help"], ["true"], runs).ours
        median = sorted(s.wall for s in start_up)[len(start_up) // 2]
        return [
            Row(
                "`stepset logs`, 16 ranks x 20,000 lines, against cat of the 16 files",
                f"{1 / pair.ratio('wall'):.2f} x as fast; {pair.difference('wall') - median:+.2f} s without start-up",
                ">= 0.8 x",
            )
        ]
