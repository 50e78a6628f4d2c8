"""A mount of a volume that does not exist."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"pod_template": {"containers": [{"name": "node", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}]}},
    expected="The job is refused before anything is sent: a Job accepts it, but cannot create pods.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateVolumeMounts)",
    refused=everywhere("pod_template.containers.node.volumeMounts.cache: no volume has this name"),
)
