"""A second container that is restarted after failures only: neither a sidecar nor a container that keeps its end."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"pod_template": {"containers": [{"name": "warm", "image": "warm:1", "restartPolicy": "OnFailure"}]}},
    expected="Every target refuses the job, and names restartPolicy: Never as the remedy.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (validateInitContainers); docs/targets.md",
    refused=everywhere("pod_template.containers.warm.restartPolicy: a container beside 'node' is a sidecar"),
)
