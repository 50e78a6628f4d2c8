"""A KFP step: `python -m tests.contract.drivers.step REQUEST.json` runs the body of the component distributed_train.

Its output is the step's log, its exit code the step's; `result` and `report` are written beside the request. It runs in
KFP's environment on this machine: KUBECONFIG determines the server, as for a step outside a pod.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepset_kfp.step.train import train

_NOT_GIVEN: dict[str, Any] = {
    "admission_timeout": 0,
    "log_ranks": "all",
    "num_nodes": -1,
    "on_interrupt": "suspend",
    "packed_code": "",
    "startup_timeout": 600,
    "task_config": None,
}


@dataclass
class Artifact:
    """An output artifact as KFP gives it to a component, as far as the component writes to it."""

    path: str
    uri: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def log_metric(self, metric: str, value: float) -> None:
        """Records a metric."""
        self.metadata[metric] = value


def main(path: str) -> None:
    """Runs the step of a request."""
    request, directory = json.loads(Path(path).read_text()), Path(path).parent
    outputs = {name: Artifact(str(directory / name), str(directory / name)) for name in ("model", "metrics", "report")}
    given = {**_NOT_GIVEN, **outputs, "result": str(directory / "result"), "run": str(directory / "run")}
    train({**given, "job": request["job"], "backend": "kubernetes", **request["options"]})


if __name__ == "__main__":
    main(sys.argv[1])
