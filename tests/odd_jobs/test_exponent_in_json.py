"""A JSON job file with a number in scientific notation."""

from __future__ import annotations

from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job=read_mapping('{"args": ["--steps", 1e3]}', "job.json"),
    expected="The job is refused with the quoted form; the command must not get 1000.0.",
    source="RFC 8259 section 6; docs/job-file.md",
    refused=everywhere('args.1: 1e3 is read as 1000.0; write "1e3"'),
)
