"""A variable called NO, which YAML 1.1 reads as false."""

from __future__ import annotations

from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job=read_mapping("env: {NO: oslo}", "job.yaml"),
    expected="The job is refused with the quoted form of the name.",
    source="YAML 1.1 type bool; docs/job-file.md",
    refused=everywhere('env: the key NO is read as false; write "NO"'),
)
