"""A distributed training run as one step of your pipeline.

    import stepset
    status = stepset.run(stepset.TrainingJob(framework="torch", num_nodes=2, procs_per_node=2, script="train.py"))

The names in `__all__` are the public API. They are imported on first use, so that `import stepset` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset import aio
    from stepset.api import JobSource, explain, prune, render, run
    from stepset.backends.base import ClusterOptions, OpenLineListener, RunListener
    from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError, StepsetError, TrainingFailedError
    from stepset.exit_code import ExitCode
    from stepset.plan.explain import ExplainRow
    from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RankStatus, RunStatus, Waiting
    from stepset.spec import TrainingJob, load_job
    from stepset.watch.lines import OpenLine

__version__ = "0.1.0"
__all__ = [
    "BadInputError",
    "ClusterOptions",
    "ExitCode",
    "ExplainRow",
    "Failure",
    "FailureKind",
    "InfrastructureError",
    "JobSource",
    "LogLine",
    "OpenLine",
    "OpenLineListener",
    "Phase",
    "Progress",
    "RankStatus",
    "RunListener",
    "RunNotFoundError",
    "RunStatus",
    "StepsetError",
    "TrainingFailedError",
    "TrainingJob",
    "Waiting",
    "aio",
    "explain",
    "load_job",
    "prune",
    "render",
    "run",
]

_MODULES = {
    "BadInputError": "stepset.errors",
    "ClusterOptions": "stepset.backends.base",
    "ExitCode": "stepset.exit_code",
    "ExplainRow": "stepset.plan.explain",
    "Failure": "stepset.run_status",
    "FailureKind": "stepset.run_status",
    "InfrastructureError": "stepset.errors",
    "JobSource": "stepset.api",
    "LogLine": "stepset.run_status",
    "OpenLine": "stepset.watch.lines",
    "OpenLineListener": "stepset.backends.base",
    "Phase": "stepset.run_status",
    "Progress": "stepset.run_status",
    "RankStatus": "stepset.run_status",
    "RunListener": "stepset.backends.base",
    "RunNotFoundError": "stepset.errors",
    "RunStatus": "stepset.run_status",
    "StepsetError": "stepset.errors",
    "TrainingFailedError": "stepset.errors",
    "TrainingJob": "stepset.spec",
    "Waiting": "stepset.run_status",
    "explain": "stepset.api",
    "load_job": "stepset.spec",
    "prune": "stepset.api",
    "render": "stepset.api",
    "run": "stepset.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("stepset.aio")
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)  # found without this function next time
        return value
    raise AttributeError(f"module 'stepset' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
