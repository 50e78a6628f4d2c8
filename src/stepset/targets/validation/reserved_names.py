"""The environment variables that a job cannot set, because a target or the target's controller sets these variables.

Sources: kubernetes v1.36 pkg/controller/job/indexed_job_utils.go (addCompletionIndexEnvVariable); volcano-sh/volcano
docs/user-guide/how_to_use_svc_plugin.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepset.plan.model import NODE
from stepset.spec.job import TrainingJob
from stepset.spec.template import node_env_names
from stepset.targets.pods.shell import PREFIX

_INDEXED_JOB = re.compile("JOB_COMPLETION_INDEX")
_VOLCANO = re.compile("VC_[A-Z0-9_]+_(HOSTS|NUM)")
_RESERVED = {
    "statefulset": re.compile(f"POD_NAME|POD_NAMESPACE|POD_NUMS|POD_PORT|SVC_NAME|{PREFIX}.*"),
    "jobset": _INDEXED_JOB,
    "trainjob": _INDEXED_JOB,
    "job": _INDEXED_JOB,
    "volcano": _VOLCANO,
}


def name_conflicts(job: TrainingJob, target: str) -> Iterator[str]:
    """Yields one line for each variable of a job that the target also sets."""
    reserved = _RESERVED[target]
    fields = {f"env.{name}": name for name in job.env}
    fields |= {f"roles.{role.name}.env.{name}": name for role in job.roles for name in role.env}
    fields |= {f"pod_template.containers.{NODE}.env.{name}": name for name in node_env_names(job.pod_template)}
    for field, name in fields.items():
        if reserved.fullmatch(name):
            yield f"{field}: target {target} sets this variable itself; use another name"
