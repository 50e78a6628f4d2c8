"""`make demo-kfp`: retrains the digits classifier of pipelines/digits_retrain.py twice with KFP's local runner.

No cluster and no Docker. Everything goes to demo-out/kfp, which is made anew. The first run starts from random weights,
the second from the model the first one promoted. Exits with 1 when a run failed or its model is not good enough.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo-out" / "kfp"
GOOD_ENOUGH = 0.95

# KFP shows what it hands to each step, sixty lines of it.
_OURS = re.compile(r"^(stepset: |\[rank |\d+ digits|candidate |promoted: )|^Executing task|Traceback|Error")
_COLOUR = re.compile(r"\x1b\[\d+m")


class OurLines:
    """A text stream that hands on the lines that say something about the training."""

    def __init__(self, out: Any) -> None:
        self._out, self._rest = out, ""

    def write(self, text: str) -> int:
        """Takes text in."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            line = _COLOUR.sub("", line).strip()
            if _OURS.search(line):
                self._out.write(f"  {line}\n")
        self._out.flush()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back but unfinished lines."""


@contextmanager
def only_our_lines() -> Iterator[None]:
    """Standard output without KFP's details."""
    before, sys.stdout = sys.stdout, OurLines(sys.stdout)  # type: ignore[assignment]  # all that print needs
    try:
        yield
    finally:
        sys.stdout = before


def main() -> int:
    """Runs the demo; the exit code."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    os.environ["STEPSET_HOME"] = str(OUT / "stepset")
    sys.path.insert(0, str(ROOT / "pipelines"))
    print("A PyTorch DDP training on 2 nodes x 2 processes as one step of a Kubeflow pipeline, run twice.", flush=True)
    import logging

    from digits_retrain import digits_retrain
    from kfp import local

    logging.disable(logging.INFO)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(OUT / "outputs"))
    accuracies = []
    for number, start in ((1, "from random weights"), (2, "from the model the first run promoted")):
        print(f"\nRun {number}: {start}", flush=True)
        before = set(OUT.glob("outputs/*"))
        try:
            with only_our_lines():
                digits_retrain(home=str(OUT / "home"))
        except RuntimeError as error:
            print(f"demo: run {number} failed: {_COLOUR.sub('', str(error))}", file=sys.stderr)
            return 1
        (made,) = set(OUT.glob("outputs/*")) - before
        accuracies.append(accuracy_of(made))
        report = shutil.copy(made / "distributed-train" / "report", OUT / f"report-{number}.html")
        print(f"  accuracy {accuracies[-1]:.2%}, {'promoted' if (made / 'promote').exists() else 'not promoted'}")
        print(f"  report: {Path(report).relative_to(ROOT)}")
    print("\nState and logs of both trainings: STEPSET_HOME=demo-out/kfp/stepset stepset list")
    poor = [accuracy for accuracy in accuracies if accuracy <= GOOD_ENOUGH]
    for accuracy in poor:
        print(f"demo: only {accuracy:.2%}; more than {GOOD_ENOUGH:.0%} was to be", file=sys.stderr)
    return 1 if poor else 0


def accuracy_of(made: Path) -> float:
    """What the step `evaluate` measured."""
    told = json.loads((made / "evaluate" / "executor_output.json").read_text())
    return float(told["artifacts"]["metrics"]["artifacts"][0]["metadata"]["accuracy"])


if __name__ == "__main__":
    sys.exit(main())
