"""A distributed training run as one step of your pipeline.

    import stepset
    outcome = stepset.run(stepset.TrainingJob(framework="torch", num_nodes=2, procs_per_node=2, script="train.py"))

Names are imported on first use, so that `import stepset` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset import aio
    from stepset.api import TrainingFailedError, explain, render, run
    from stepset.errors import BadInputError, StepsetError
    from stepset.spec import TrainingJob, load_job

__version__ = "0.1.0"
__all__ = [
    "BadInputError",
    "StepsetError",
    "TrainingFailedError",
    "TrainingJob",
    "aio",
    "explain",
    "load_job",
    "render",
    "run",
]

_HOMES = {
    "BadInputError": "stepset.errors",
    "StepsetError": "stepset.errors",
    "TrainingFailedError": "stepset.api",
    "TrainingJob": "stepset.spec",
    "explain": "stepset.api",
    "load_job": "stepset.spec",
    "render": "stepset.api",
    "run": "stepset.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("stepset.aio")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'stepset' has no attribute {name!r}")
