"""Detects fields and paths of the container `node` in `pod_template` that conflict with stepset's fields and paths."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.template import node_container, node_place
from stepset.targets.names import AGENT_DIR, CODE_DIR, RUN_DIR, SOURCE_DIR, SSH_DIR
from stepset.unstructured import rows

_HANDLERS = ("exec", "grpc", "httpGet")
_MOUNTED = (AGENT_DIR, CODE_DIR, RUN_DIR, SOURCE_DIR, SSH_DIR)


def training_container_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each problem."""
    container = node_container(job.pod_template)
    place = node_place(job.pod_template)
    for field in ("restartPolicy", "restartPolicyRules"):
        if container.get(field):
            yield f"{place}.{field}: a gang is started again as a whole; use restart"
    if container.get("terminationMessagePath") and any(group.agent for group in plan.groups):
        yield (
            f"{place}.terminationMessagePath: stepset's agent writes the result and the cause of a failure to the"
            " default path; leave it out"
        )
    if plan.ssh is not None and _has_other_handler(container.get("startupProbe")):
        yield (
            f"{place}.startupProbe: the nodes of this job have a startupProbe for their ssh server, and a probe has one"
            " handler; use readinessProbe or livenessProbe"
        )
    if _replaces_command(container):
        yield from _replaced_starters(plan, place)
    for mount in rows(container, "volumeMounts"):
        path = posixpath.normpath(str(mount.get("mountPath")))
        if path in _MOUNTED and "$patch" not in mount and not str(mount.get("name")).startswith("stepset-"):
            yield f"{place}.volumeMounts: {path} is reserved by stepset; give another path"


def _replaces_command(container: Mapping[str, Any]) -> bool:
    """Returns whether `pod_template` replaces or removes the command of the container `node`."""
    return "command" in container or container.get("$patch") == "replace"


def _replaced_starters(plan: LaunchPlan, place: str) -> Iterator[str]:
    """Yields a problem if a replaced command would have started the ranks of the job.

    This function does not examine the commands of torch jobs, because they may start torchrun
    (`frameworks/rank_starters.py`).
    """
    if plan.ssh is not None:
        yield (
            f"{place}.command: would replace the ssh servers of the nodes and the mpirun of the launcher; use the job's"
            " script, module or command"
        )
        return
    for group in plan.groups:
        if group.agent and group.agent.processes > 1:
            yield (
                f"{place}.command: would replace stepset's agent, which starts {group.agent.processes} processes in"
                " each pod; use the job's script, module or command, or set procs_per_node: 1"
            )


def _has_other_handler(probe: Any) -> bool:
    """Returns whether a probe would have a second handler after it is merged with stepset's `tcpSocket` probe."""
    if not isinstance(probe, Mapping) or probe.get("$patch") or ("tcpSocket" in probe and probe["tcpSocket"] is None):
        return False
    return any(probe.get(handler) for handler in _HANDLERS)
