"""A time of day without quotes, which YAML 1.1 reads as a number of base 60."""

from __future__ import annotations

from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job=read_mapping("args: [--start, 12:30]", "job.yaml"),
    expected="The job is refused with the quoted form; the command must not get 750.",
    source="YAML 1.1 type int (base 60); docs/job-file.md",
    refused=everywhere('args.1: 12:30 is read as 750; write "12:30"'),
)
