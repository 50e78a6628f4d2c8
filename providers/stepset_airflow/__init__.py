"""stepset's Airflow provider: a distributed training run as one task.

    from stepset_airflow import DistributedTrainOperator

Airflow imports this package in each of its processes to find the provider, so nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepset_airflow.operators import DistributedTrainOperator

__all__ = ["DistributedTrainOperator"]


def __getattr__(name: str) -> Any:
    if name == "DistributedTrainOperator":
        from stepset_airflow.operators import DistributedTrainOperator

        return DistributedTrainOperator
    raise AttributeError(f"module 'stepset_airflow' has no attribute {name!r}")
