"""A version without quotes, which YAML reads as a shorter number."""

from __future__ import annotations

from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job=read_mapping("env: {CUDA_VERSION: 12.10}", "job.yaml"),
    expected="The job is refused with the quoted form; the pods must not get 12.1.",
    source="YAML 1.2 section 10.3.2 (float); docs/job-file.md",
    refused=everywhere('env.CUDA_VERSION: 12.10 is read as 12.1; write "12.10"'),
)
