"""The data of the target job."""

from __future__ import annotations

from tests.targets.cases.case import Refusal, TargetCase

CASE = TargetCase(
    objects=("Service", "Job"),
    unsupported={
        "job": "roles.prepare: target job",
        "mpi": "framework: target job",
        "mpich": "framework: target job",
        "roles": "roles.prepare: target job",
        "torch-queue": "restart.max_restarts: target job",
    },
    name_budgets={10: 61, 100: 60},
    refused=(
        Refusal({"roles": [{"name": "r", "command": ["x"]}]}, "roles.r: target job cannot start and stop"),
        Refusal({"restart": {"max_restarts": 1}}, "restart.max_restarts: target job cannot"),
    ),
    own_fields={},
    mapped={"spec.template.spec.containers[0].image": "image"},
)
