"""Records samples of a process that waits for many runs.

Each second, the process records the resources that it has used so far. For each run, the process records the time of
the first status and the time of the end. wait.py writes the samples. benchmarks/watching.py and benchmarks/scale.py
read the samples.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TextIO


class Samples:
    """Writes samples to a file, one JSON object per line.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._out: TextIO = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  # until the process ends
        self.requests = 0
        self._next = 0.0

    def tick(self, *, now: bool = False) -> None:
        """Writes the CPU seconds, the peak memory and the number of requests so far.

        The method does nothing if the last sample was written less than a second ago.

        Args:
            now: whether to write the sample even if the last sample was written less than a second ago.
        """
        at = time.time()
        if now or at >= self._next:
            self._next = at + 1
            self._write({"at": at, "cpu": time.process_time(), "mib": _peak(), "requests": self.requests})

    def known(self, run: str) -> None:
        """Records that the process has received the first status of a run."""
        self._write({"at": time.time(), "known": run})

    def ended(self, run: str) -> None:
        """Records that the process has detected the end of a run."""
        self._write({"at": time.time(), "run": run})

    def _write(self, row: dict[str, object]) -> None:
        self._out.write(json.dumps(row) + "\n")


def _peak() -> float:
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM:")) / 1024
