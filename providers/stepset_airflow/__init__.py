"""stepset's Airflow provider, which runs a distributed training as one task.

    from stepset_airflow import DistributedTrainOperator, DistributedTrainSensor, TrainingRetryPolicy

Every Airflow process imports this package to find the provider. Therefore the import of this package must be fast. The
package imports the module of a class when the class is used for the first time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset_airflow.exceptions import TrainingTaskError
    from stepset_airflow.hooks.distributed_train import DistributedTrainHook
    from stepset_airflow.operators.distributed_train import DistributedTrainOperator
    from stepset_airflow.retry import TrainingRetryPolicy
    from stepset_airflow.sensors.distributed_train import DistributedTrainSensor
    from stepset_airflow.triggers.jobset_finished import JobSetFinishedEventTrigger

__all__ = [
    "DistributedTrainHook",
    "DistributedTrainOperator",
    "DistributedTrainSensor",
    "JobSetFinishedEventTrigger",
    "TrainingRetryPolicy",
    "TrainingTaskError",
]

_MODULES = {
    "DistributedTrainHook": "hooks.distributed_train",
    "DistributedTrainOperator": "operators.distributed_train",
    "DistributedTrainSensor": "sensors.distributed_train",
    "JobSetFinishedEventTrigger": "triggers.jobset_finished",
    "TrainingRetryPolicy": "retry",
    "TrainingTaskError": "exceptions",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
