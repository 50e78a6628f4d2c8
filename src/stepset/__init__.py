"""A distributed training run as one step of your pipeline.

    import stepset
    status = stepset.run(stepset.TrainingJob(framework="torch", num_nodes=2, procs_per_node=2, script="train.py"))

The names in `__all__` are the public API. Each name is imported when it is used for the first time. Therefore
`import stepset` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset import aio
    from stepset.api import JobSource, explain, prune, render, run, submit
    from stepset.backends.base import ClusterOptions, OpenLineListener, RunListener
    from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError, StepsetError, TrainingFailedError
    from stepset.exit_code import ExitCode
    from stepset.hang import CollectiveCall, Hang, HangGroup, HangKind, SlowRanks, StackFrame
    from stepset.notebook.results import Diagnosis, LogLines, RunList, Stacks
    from stepset.plan.explain import ExplainRow
    from stepset.run_status import (
        Failure,
        FailureKind,
        LogLine,
        Phase,
        Progress,
        ProgressPoint,
        RankStatus,
        RunStatus,
        Waiting,
    )
    from stepset.runs import Run, cancel, delete, diagnose, list_runs, logs, stacks, status
    from stepset.spec import TrainingJob, load_job
    from stepset.watch.lines import OpenLine
    from stepset.watch.stacks.model import RankStacks, StackCollective, StackProcess, StackThread

__version__ = "0.1.0"
__all__ = [
    "BadInputError",
    "ClusterOptions",
    "CollectiveCall",
    "Diagnosis",
    "ExitCode",
    "ExplainRow",
    "Failure",
    "FailureKind",
    "Hang",
    "HangGroup",
    "HangKind",
    "InfrastructureError",
    "JobSource",
    "LogLine",
    "LogLines",
    "OpenLine",
    "OpenLineListener",
    "Phase",
    "Progress",
    "ProgressPoint",
    "RankStacks",
    "RankStatus",
    "Run",
    "RunList",
    "RunListener",
    "RunNotFoundError",
    "RunStatus",
    "SlowRanks",
    "StackCollective",
    "StackFrame",
    "StackProcess",
    "StackThread",
    "Stacks",
    "StepsetError",
    "TrainingFailedError",
    "TrainingJob",
    "Waiting",
    "aio",
    "cancel",
    "delete",
    "diagnose",
    "explain",
    "list_runs",
    "load_job",
    "logs",
    "prune",
    "render",
    "run",
    "stacks",
    "status",
    "submit",
]

_MODULES = {
    "BadInputError": "stepset.errors",
    "ClusterOptions": "stepset.backends.base",
    "CollectiveCall": "stepset.hang",
    "Diagnosis": "stepset.notebook.results",
    "ExitCode": "stepset.exit_code",
    "ExplainRow": "stepset.plan.explain",
    "Failure": "stepset.run_status",
    "FailureKind": "stepset.run_status",
    "Hang": "stepset.hang",
    "HangGroup": "stepset.hang",
    "HangKind": "stepset.hang",
    "InfrastructureError": "stepset.errors",
    "JobSource": "stepset.api",
    "LogLine": "stepset.run_status",
    "LogLines": "stepset.notebook.results",
    "OpenLine": "stepset.watch.lines",
    "OpenLineListener": "stepset.backends.base",
    "Phase": "stepset.run_status",
    "Progress": "stepset.run_status",
    "ProgressPoint": "stepset.run_status",
    "RankStacks": "stepset.watch.stacks.model",
    "RankStatus": "stepset.run_status",
    "Run": "stepset.runs",
    "RunList": "stepset.notebook.results",
    "RunListener": "stepset.backends.base",
    "RunNotFoundError": "stepset.errors",
    "RunStatus": "stepset.html.status",  # this module registers the text and HTML that notebooks show
    "SlowRanks": "stepset.hang",
    "StackCollective": "stepset.watch.stacks.model",
    "StackFrame": "stepset.hang",
    "StackProcess": "stepset.watch.stacks.model",
    "StackThread": "stepset.watch.stacks.model",
    "Stacks": "stepset.notebook.results",
    "StepsetError": "stepset.errors",
    "TrainingFailedError": "stepset.errors",
    "TrainingJob": "stepset.spec",
    "Waiting": "stepset.run_status",
    "cancel": "stepset.runs",
    "delete": "stepset.runs",
    "diagnose": "stepset.runs",
    "explain": "stepset.api",
    "list_runs": "stepset.runs",
    "load_job": "stepset.spec",
    "logs": "stepset.runs",
    "prune": "stepset.api",
    "render": "stepset.api",
    "run": "stepset.api",
    "stacks": "stepset.runs",
    "status": "stepset.runs",
    "submit": "stepset.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("stepset.aio")
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)  # Python then finds the name directly
        return value
    raise AttributeError(f"module 'stepset' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
