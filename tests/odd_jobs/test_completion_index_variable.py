"""A variable that the Job controller sets."""

from __future__ import annotations

from tests.odd_jobs import OddJob

WORDS = "env.JOB_COMPLETION_INDEX: target {} sets this variable itself; use another name"
ODD_JOB = OddJob(
    job={"env": {"JOB_COMPLETION_INDEX": "7"}},
    expected="Targets whose pods belong to an Indexed Job refuse the name.",
    source="kubernetes v1.36 pkg/controller/job/indexed_job_utils.go (addCompletionIndexEnvVariable)",
    refused={target: WORDS.format(target) for target in ("jobset", "trainjob", "job")},
)
