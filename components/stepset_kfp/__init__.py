"""Kubeflow Pipelines components of stepset; docs/kfp.md describes how to use them.

Names are imported on first use, so that a step's body, which imports this package, does not import kfp (2 s).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset_kfp.authoring.distribute import distribute as distribute
    from stepset_kfp.authoring.distributed_train import distributed_train as distributed_train
    from stepset_kfp.training.cleanup_training.component import cleanup_training as cleanup_training
    from stepset_kfp.training.wait_for_training.component import wait_for_training as wait_for_training

_MODULES = {
    "cleanup_training": "stepset_kfp.training.cleanup_training.component",
    "distribute": "stepset_kfp.authoring.distribute",
    "distributed_train": "stepset_kfp.authoring.distributed_train",
    "wait_for_training": "stepset_kfp.training.wait_for_training.component",
}

__all__ = ["cleanup_training", "distribute", "distributed_train", "wait_for_training"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
