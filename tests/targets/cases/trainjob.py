"""The data of the target trainjob."""

from __future__ import annotations

from typing import Any

from tests.targets.cases import jobset
from tests.targets.cases.case import OwnField, TargetCase
from tests.targets.making import Manifest, of_kind


def _like_jobset(field: OwnField) -> OwnField:
    """The TrainingRuntime contains the JobSet."""

    def rendered(objects: list[Manifest]) -> Any:
        inner = of_kind(objects, "TrainingRuntime")["spec"]["template"]
        return field.rendered([{**inner, "kind": "JobSet"}])

    return field._replace(rendered=rendered)


CASE = TargetCase(
    objects=("TrainingRuntime", "TrainJob"),
    unsupported={},
    name_budgets={10: 48, 1000: 46},
    refused=(),
    own_fields={path: _like_jobset(field) for path, field in jobset.CASE.own_fields.items()},
    mapped={
        "spec.trainer.image": "image",
        "spec.trainer.numNodes": "num_nodes",
        "spec.trainer.numProcPerNode": "procs_per_node",
    },
)
