"""A second container that is to run once: a sidecar would be restarted for ever."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"pod_template": {"containers": [{"name": "warm", "image": "warm:1", "restartPolicy": "Never"}]}},
    expected="Every target refuses the job, and names init containers and roles as the remedy.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (validateInitContainers); docs/targets.md",
    refused=everywhere("pod_template.containers.warm.restartPolicy: a container beside 'node' is a sidecar"),
)
