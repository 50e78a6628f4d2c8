"""`TrainingJob`, the model of a job file, and the functions that load a job.

The names of this package are imported when they are first used. Therefore importing `stepset.spec.names` does not
import pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob
    from stepset.spec.load import load_job, parse_job

__all__ = ["TrainingJob", "load_job", "parse_job"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("stepset.spec.job" if name == "TrainingJob" else "stepset.spec.load"), name)
    raise AttributeError(f"module 'stepset.spec' has no attribute {name!r}")
