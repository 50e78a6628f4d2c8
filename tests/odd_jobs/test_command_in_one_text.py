"""A lifecycle hook whose command is one text."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={
        "pod_template": {"containers": [{"name": "node", "lifecycle": {"preStop": {"exec": {"command": "sleep 5"}}}}]}
    },
    expected="The job is refused with the list of words.",
    source="k8s.io/api v0.36 core/v1/types.go (ExecAction)",
    refused=everywhere(
        "pod_template.containers.0.lifecycle.preStop.exec.command: 'sleep 5' is text, not a list; write"
        ' ["sleep", "5"]'
    ),
)
