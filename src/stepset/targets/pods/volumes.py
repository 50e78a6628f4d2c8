"""Volumes of a pod: the agent and the code, the plan's files, ssh, /dev/shm, the job's storage."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from stepset.plan.model import PlanFile, PodGroup
from stepset.targets.config_maps import AGENT_KEY, agent_name, code_name, file_name
from stepset.targets.names import AGENT_DIR, CODE_DIR, RUN_DIR, SOURCE_DIR
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods import ssh
from stepset.targets.pods.agent_config import config_key
from stepset.targets.request import RenderRequest

AGENT_CONFIG = "config.json"
SHARED_MEMORY = "dshm"
"""The name of the volume at /dev/shm."""
_READ_ONLY = 0o444

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""(volumes, volume mounts)"""


def pod_volumes(
    request: RenderRequest, group: PodGroup, *, scratch: bool, trainer_mounts: frozenset[str] = frozenset()
) -> Rows:
    """Volumes of a group's pods and their mounts in the container `node`; Trainer itself adds `trainer_mounts`.

    `scratch`: the pod needs its scratch directory even without the agent.
    """
    files = [file for file in request.plan.files if group.name in file.groups and file.name not in trainer_mounts]
    parts = [
        *_agent(request, group, scratch),
        *_code(request, group),
        *(_file(request, file) for file in files),
        ssh.volumes(request, group, secret=ssh.SECRET_VOLUME not in trainer_mounts),
        _shared_memory(group),
        _storage(request),
    ]
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for more_volumes, more_mounts in parts:
        volumes += more_volumes
        mounts += more_mounts
    return volumes, mounts


def code_in_place(request: RenderRequest, group: PodGroup) -> bool:
    """Whether the job's code is mounted in the working directory; with the agent, the agent copies it there."""
    runs_the_program = group.in_world or group.name == request.plan.success.group
    return group.agent is None and bool(request.shipped) and runs_the_program


def _volume(name: str, path: str, **source: Any) -> Rows:
    return [{"name": name, **source}], [{"name": name, "mountPath": path}]


def _agent(request: RenderRequest, group: PodGroup, scratch: bool) -> Iterator[Rows]:
    if group.agent is not None:
        items = [{"key": AGENT_KEY, "path": AGENT_KEY}, {"key": config_key(group), "path": AGENT_CONFIG}]
        yield _volume("stepset-agent", AGENT_DIR, configMap={"name": agent_name(request), "items": items})
    if scratch or group.agent is not None:
        yield _volume("stepset-run", RUN_DIR, emptyDir={})


def _code(request: RenderRequest, group: PodGroup) -> Iterator[Rows]:
    """Mounts the code read-only; the agent, if there is one, copies or unpacks it to where ranks can write."""
    shipped = request.shipped
    if group.agent is not None and (shipped or request.sources.archive is not None):
        yield _volume("stepset-source", SOURCE_DIR, configMap={"name": code_name(request)})
        yield _volume("stepset-code", CODE_DIR, emptyDir={})
    elif code_in_place(request, group):
        items = [{"key": file.key, "path": file.name} for file in shipped]
        yield _volume("stepset-source", CODE_DIR, configMap={"name": code_name(request), "items": items})


def _file(request: RenderRequest, file: PlanFile) -> Rows:
    items = [{"key": file.key, "path": file.key, "mode": _READ_ONLY}]
    config = {"name": file_name(request, file), "items": items}
    return _volume(file.name, posixpath.dirname(file.path), configMap=config)


def _shared_memory(group: PodGroup) -> Rows:
    """/dev/shm in memory: a container's default has 64 MB, too little for data loaders and NCCL."""
    return _volume(
        SHARED_MEMORY, "/dev/shm", emptyDir={"medium": "Memory", **without_empty(sizeLimit=group.resources.shm)}
    )


def _storage(request: RenderRequest) -> Rows:
    """One volume for each claim, however often it is mounted."""
    mounted = request.job.storage
    if not mounted:
        return [], []
    names = {claim: f"storage-{number}" for number, claim in enumerate(dict.fromkeys(each.claim for each in mounted))}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    mounts = [
        without_empty(
            name=names[each.claim], mountPath=each.path, subPath=each.sub_path, readOnly=each.read_only or None
        )
        for each in mounted
    ]
    return volumes, mounts
