"""The data of the target volcano."""

from __future__ import annotations

from tests.targets.cases.case import RETRIED_UNLESS_USER_ERROR, Refusal, TargetCase

_ELASTIC = {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 1}}, "procs_per_node": 1}
_BEFORE = {"roles": [{"name": "r", "before": True, "command": ["x"]}]}
CASE = TargetCase(
    objects=("Job",),
    unsupported={
        "job": "roles.prepare.before: Volcano",
        "roles": "roles.prepare.before: Volcano",
        "torch-elastic": "framework.elastic: a Volcano Job",
        "torch-queue": "restart.user_errors: target volcano",
    },
    name_budgets={10: 56, 100: 55},
    refused=(
        Refusal(RETRIED_UNLESS_USER_ERROR, "restart.user_errors: target volcano"),
        Refusal(_BEFORE, "roles.r.before: Volcano starts the nodes once the role runs"),
        Refusal(_ELASTIC, "framework.elastic: a Volcano Job"),
        Refusal({"network": {"subdomain": "x"}}, "network.subdomain: Volcano names the Service"),
        Refusal({"scheduling": {"gang": "coscheduling"}}, "scheduling.gang: Volcano itself schedules the gang"),
    ),
    own_fields={},
    mapped={"spec.queue": "scheduling.queue_name", "spec.tasks[0].template.spec.containers[0].image": "image"},
)
