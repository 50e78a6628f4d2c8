"""Measures the CPU time of `import stepset` and of `stepset --help`."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from benchmarks.paired import Row, timed

BIN = Path(sys.executable).parent


def _cpu(*command: str, runs: int = 7) -> float:
    return statistics.median(timed(command, dict(os.environ)).cpu for _ in range(runs))


def rows() -> list[Row]:
    """Returns rows with the CPU seconds of new processes.

    For an import, the CPU seconds of a process that imports nothing are subtracted.
    """
    python = str(BIN / "python")
    empty = _cpu(python, "-c", "pass")
    bare = _cpu(python, "-c", "import stepset") - empty
    job = _cpu(python, "-c", "import stepset; stepset.TrainingJob") - empty
    help_ = _cpu(str(BIN / "stepset"), "--help")
    return [
        Row("`import stepset`", f"{bare:.3f} s CPU", ""),
        Row("`stepset.TrainingJob` (pydantic)", f"{job:.2f} s CPU", ""),
        Row("`stepset --help`", f"{help_:.2f} s CPU", "<= 0.4 s CPU", help_ <= 0.4),
    ]
