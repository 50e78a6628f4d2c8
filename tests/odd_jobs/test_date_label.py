"""A date without quotes as a label."""

from __future__ import annotations

from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job=read_mapping("labels: {built: 2026-11-25}", "job.yaml"),
    expected="The job is refused with the quoted form.",
    source="YAML 1.1 type timestamp; docs/job-file.md",
    refused=everywhere('labels.built: 2026-11-25 is read as a date; write "2026-11-25"'),
)
