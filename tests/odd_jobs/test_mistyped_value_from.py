"""A mistyped field of a variable, which the API server drops."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ROW = {"name": "TOKEN", "valuefrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
ODD_JOB = OddJob(
    job={"pod_template": {"containers": [{"name": "node", "env": [ROW]}]}},
    expected="The job is refused; otherwise TOKEN would be empty in the pods.",
    source="k8s.io/api v0.36 core/v1/types.go (EnvVar); unknown fields are dropped without strict validation",
    refused=everywhere("pod_template.containers.node.env.TOKEN: unknown field 'valuefrom'; did you mean 'valueFrom'?"),
)
