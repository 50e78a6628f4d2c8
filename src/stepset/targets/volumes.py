"""Volumes of a pod: the agent and the code, the plan's files, ssh, /dev/shm, the job's storage."""

from __future__ import annotations

import posixpath
from typing import Any

from stepset.plan.model import PlanFile, PodGroup
from stepset.spec.parts import Storage
from stepset.targets import ssh
from stepset.targets.agent_config import config_key
from stepset.targets.configs import AGENT_KEY, agent_name, code_name, file_name, shipped_files
from stepset.targets.names import AGENT_DIR, CODE_DIR, RUN_DIR, SOURCE_DIR
from stepset.targets.request import RenderRequest

AGENT_CONFIG = "config.json"
_READ_ONLY = 0o444

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""(volumes, volume mounts)"""


def pod_volumes(
    request: RenderRequest, group: PodGroup, *, scratch: bool, trainer_mounts: frozenset[str] = frozenset()
) -> Rows:
    """Volumes of a group's pods and their mounts in the container `node`.

    Args:
        request: what is rendered.
        group: the pods' group.
        scratch: the pod needs its scratch directory even without the agent.
        trainer_mounts: names of volumes that Kubeflow Trainer adds by itself.
    """
    parts = [
        _agent(request, group, scratch),
        _code(request, group),
        *(
            _file(request, file)
            for file in request.plan.files
            if group.name in file.groups and file.name not in trainer_mounts
        ),
        ssh.volumes(request, group, secret=ssh.SECRET_VOLUME not in trainer_mounts),
        _shared_memory(group),
        *_storage(request),
    ]
    volumes = [volume for part in parts for volume in part[0]]
    mounts = [mount for part in parts for mount in part[1]]
    return volumes, mounts


def code_in_place(request: RenderRequest, group: PodGroup) -> bool:
    """Whether the job's code is mounted where commands start; with the agent, it is the agent that puts it there."""
    return group.agent is None and bool(shipped_files(request)) and _runs_the_program(request, group)


def _agent(request: RenderRequest, group: PodGroup, scratch: bool) -> Rows:
    run_dir: Rows = (
        [{"name": "stepset-run", "emptyDir": {}}],
        [{"name": "stepset-run", "mountPath": RUN_DIR}],
    )
    if group.agent is None:
        return run_dir if scratch else ([], [])
    items = [
        {"key": AGENT_KEY, "path": AGENT_KEY},
        {"key": config_key(group), "path": AGENT_CONFIG},
    ]
    agent = {"name": "stepset-agent", "configMap": {"name": agent_name(request), "items": items}}
    return [agent, *run_dir[0]], [{"name": "stepset-agent", "mountPath": AGENT_DIR}, *run_dir[1]]


def _code(request: RenderRequest, group: PodGroup) -> Rows:
    """With the agent the code is copied or unpacked, and ranks may write where they start; else it is mounted."""
    shipped = shipped_files(request)
    if not shipped and request.sources.archive is None:
        return [], []
    source = {"name": "stepset-source", "configMap": {"name": code_name(request)}}
    if group.agent is not None:
        return (
            [source, {"name": "stepset-code", "emptyDir": {}}],
            [{"name": "stepset-source", "mountPath": SOURCE_DIR}, {"name": "stepset-code", "mountPath": CODE_DIR}],
        )
    if not code_in_place(request, group):
        return [], []
    items = [{"key": file.key, "path": file.name} for file in shipped]
    source = {"name": "stepset-source", "configMap": {"name": code_name(request), "items": items}}
    return [source], [{"name": "stepset-source", "mountPath": CODE_DIR}]


def _runs_the_program(request: RenderRequest, group: PodGroup) -> bool:
    return group.in_world or group.name == request.plan.success.group


def _file(request: RenderRequest, file: PlanFile) -> Rows:
    items = [{"key": file.key, "path": file.key, "mode": _READ_ONLY}]
    volume = {"name": file.name, "configMap": {"name": file_name(request, file), "items": items}}
    return [volume], [{"name": file.name, "mountPath": posixpath.dirname(file.path)}]


def _shared_memory(group: PodGroup) -> Rows:
    """/dev/shm in memory: a container's own has 64 MB, too little for data loaders and NCCL."""
    size = {"sizeLimit": group.resources.shm} if group.resources.shm is not None else {}
    volume = {"name": "dshm", "emptyDir": {"medium": "Memory", **size}}
    return [volume], [{"name": "dshm", "mountPath": "/dev/shm"}]


def _storage(request: RenderRequest) -> list[Rows]:
    """One volume for each claim, however often it is mounted."""
    claims = list(dict.fromkeys(storage.claim for storage in request.job.storage))
    volumes = [
        {"name": f"storage-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]
    return [(volumes, [_mount(storage, f"storage-{claims.index(storage.claim)}") for storage in request.job.storage])]


def _mount(storage: Storage, volume: str) -> dict[str, Any]:
    return {
        "name": volume,
        "mountPath": storage.path,
        **({"subPath": storage.sub_path} if storage.sub_path else {}),
        **({"readOnly": True} if storage.read_only else {}),
    }
