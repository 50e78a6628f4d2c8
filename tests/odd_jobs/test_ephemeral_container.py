"""An ephemeral container in pod_template."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"pod_template": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}},
    expected="The job is refused; otherwise the JobSet would be accepted, and its Jobs never created.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidatePodTemplateSpec)",
    refused=everywhere("pod_template.ephemeralContainers: Kubernetes adds them to running pods only; leave it out"),
)
