"""TrainingJob, the job file's model, and how it is loaded.

The names are imported on first use, so that code that only needs `stepset.spec.names` does not load pydantic.
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
