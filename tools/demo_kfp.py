"""`make demo-kfp`: retrains the digits classifier of pipelines/digits_retrain.py twice with KFP's local runner.

The demo needs neither a cluster nor Docker. All files are written to demo-out/kfp. If this directory exists, it is
deleted first. The first run starts from random weights. The second run starts from the model that the first run has
promoted. The exit code is 1 if a run fails or its model is not good enough.
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

# KFP prints about sixty lines about the inputs of each step. Only lines that match this pattern are shown.
_OURS = re.compile(r"^(stepset: |\[rank |\d+ digits|candidate |promoted: )|^Executing task|Traceback|Error")
_COLOUR = re.compile(r"\x1b\[\d+m")


class OurLines:
    """A text stream that writes the lines about the training to another stream, and discards all other lines."""

    def __init__(self, out: Any) -> None:
        self._out, self._rest = out, ""

    def write(self, text: str) -> int:
        """Writes the complete lines about the training to the other stream."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            line = _COLOUR.sub("", line).strip()
            if _OURS.search(line):
                self._out.write(f"  {line}\n")
        self._out.flush()
        return len(text)

    def flush(self) -> None:
        """Does nothing, because `write` writes each line as soon as it is complete."""


@contextmanager
def only_our_lines() -> Iterator[None]:
    """Hides KFP's own lines on standard output."""
    before, sys.stdout = sys.stdout, OurLines(sys.stdout)  # type: ignore[assignment]  # has what print needs
    try:
        yield
    finally:
        sys.stdout = before


def main() -> int:
    """Runs the demo and returns the exit code."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    os.environ["STEPSET_HOME"] = str(OUT / "stepset")
    sys.path.insert(0, str(ROOT / "pipelines"))
    print("A PyTorch DDP training on 2 nodes x 2 processes as one step of a Kubeflow pipeline, run twice.", flush=True)
    import logging

    from kfp import local

    logging.disable(logging.INFO)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(OUT / "outputs"))
    # This module defines the pipeline. It is imported after local.init, because a definition without the local runner
    # logs warnings about the images that a cluster needs.
    from digits_retrain import digits_retrain

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
        print(f"demo: accuracy is {accuracy:.2%}; expected more than {GOOD_ENOUGH:.0%}", file=sys.stderr)
    return 1 if poor else 0


def accuracy_of(made: Path) -> float:
    """Returns the accuracy that the step `evaluate` has measured."""
    output = json.loads((made / "evaluate" / "executor_output.json").read_text())
    return float(output["artifacts"]["metrics"]["artifacts"][0]["metadata"]["accuracy"])


if __name__ == "__main__":
    sys.exit(main())
