"""Limits that several targets have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepset.plan.model import NODE, LaunchPlan
from stepset.safe_names import LABEL_LIMIT
from stepset.spec.job import TrainingJob

INDEXED_PODS = 100_000
"""The maximum number of pods of an Indexed Job (kubernetes v1.36 pkg/apis/batch/validation/validation.go)."""
INDEXED_JOB_ENV = re.compile("JOB_COMPLETION_INDEX")
"""The variable that the Job controller sets (kubernetes v1.36 pkg/controller/job/indexed_job_utils.go)."""


def indexed_name_budget(plan: LaunchPlan) -> int:
    """Returns the maximum length of a run's name if the host name of a pod is `NAME-INDEX`."""
    return LABEL_LIMIT - len(f"-{max(group.count for group in plan.groups) - 1}")


def one_group(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    """Yields one line for each pod group besides the nodes."""
    for group in plan.groups:
        if group.name == NODE:
            continue
        field = "framework" if group.name == plan.success.group else f"roles.{group.name}"
        yield (
            f"{field}: target {target} cannot start and stop pods of several kinds together; use target"
            " jobset, trainjob or volcano"
        )


def restarts_after_any_failure(job: TrainingJob, target: str) -> Iterator[str]:
    """Yields a line for each failure after which a job must not restart, because the target cannot distinguish it."""
    if not job.restart.max_restarts:
        return
    if job.restart.user_errors == "fail":
        yield (
            f"restart.user_errors: target {target} cannot distinguish errors of the training code from others; leave it"
            " out, or use target jobset or trainjob"
        )
    if (hang := job.hang_times) is not None and hang.action == "fail":
        yield (
            f"hang.action: target {target} cannot distinguish a hang from other failures; use restart, leave"
            " restart.max_restarts out, or use target jobset or trainjob"
        )
