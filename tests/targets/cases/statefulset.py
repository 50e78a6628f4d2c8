"""The data of the target statefulset."""

from __future__ import annotations

from tests.targets.cases.case import LAUNCHER, RETRIED_UNLESS_USER_ERROR, Refusal, TargetCase

CASE = TargetCase(
    objects=("Service", "StatefulSet"),
    unsupported={
        "job": "roles.prepare: target statefulset",
        "mpi": "framework: target statefulset",
        "mpich": "framework: target statefulset",
        "roles": "roles.prepare: target statefulset",
        "torch-queue": "restart.user_errors: target statefulset",
    },
    name_budgets={10: 52},
    refused=(
        Refusal(LAUNCHER, "framework: target statefulset cannot start and stop"),
        Refusal(RETRIED_UNLESS_USER_ERROR, "restart.user_errors: target statefulset cannot distinguish"),
        Refusal({"deadline": "1h"}, "deadline: a StatefulSet has none"),
        Refusal({"ttl": "1h"}, "ttl: a StatefulSet has none"),
    ),
    own_fields={},
    mapped={
        "spec.serviceName": "network.subdomain",
        "spec.replicas": "num_nodes",
        "spec.template.spec.priorityClassName": "scheduling.priority_class",
    },
)
