"""The Kubeflow Pipelines components of stepset. docs/kfp.md describes how to use the components.

A function of the package is imported when the function is used for the first time. The body of a step also imports this
package. The step must not import kfp, because the import of kfp takes 2 s.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from stepset_kfp.authoring.around_training import cleanup_training as cleanup_training
    from stepset_kfp.authoring.around_training import wait_for_training as wait_for_training
    from stepset_kfp.authoring.distribute import distribute as distribute
    from stepset_kfp.authoring.distributed_train import distributed_train as distributed_train

_MODULES = {
    "cleanup_training": "stepset_kfp.authoring.around_training",
    "distribute": "stepset_kfp.authoring.distribute",
    "distributed_train": "stepset_kfp.authoring.distributed_train",
    "wait_for_training": "stepset_kfp.authoring.around_training",
}

__all__ = ["cleanup_training", "distribute", "distributed_train", "wait_for_training"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("kfp") is None:
        raise BadInputError(
            "the Python package kfp is missing; in a checkout of stepset's repository, run: pip install '.[kfp]'"
        )
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
