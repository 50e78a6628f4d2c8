"""Renders the volumes and volume mounts of a pod.

There are volumes for the agent, the code, the files of the plan, the ssh configuration, the ssh keys, /dev/shm and the
storage of the job.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from stepset.plan.model import PlanFile, PodGroup
from stepset.targets.names import (
    AGENT_DIR,
    AGENT_KEY,
    CODE_DIR,
    CODE_VOLUME,
    INSTALLER_KEY,
    RUN_DIR,
    SOURCE_DIR,
    agent_config_map,
    code_config_map,
    file_config_map,
)
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods import ssh
from stepset.targets.pods.agent_config import config_key
from stepset.targets.request import RenderRequest

AGENT_CONFIG = "config.json"
SHARED_MEMORY = "dshm"
"""The name of the volume that is mounted at /dev/shm."""
_READ_ONLY = 0o444

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""A tuple of two lists. The first list contains volumes, and the second list contains volume mounts."""


def pod_volumes(request: RenderRequest, group: PodGroup, *, scratch: bool, trainer_mounts: frozenset[str]) -> Rows:
    """Returns the volumes of a group's pods, and the volume mounts of the container `node`.

    Args:
        scratch: whether the pods need the scratch directory even without the agent.
        trainer_mounts: the names of the volumes that Kubeflow Trainer adds. The result does not contain these volumes.
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
    return [row for volumes, _ in parts for row in volumes], [row for _, mounts in parts for row in mounts]


def code_in_place(request: RenderRequest, group: PodGroup) -> bool:
    """Returns whether a volume with the job's code is mounted at the working directory of the command.

    If the pods have an agent, the result is False, because the agent copies the code to the working directory.
    """
    mounted = bool(request.shipped) or request.job.code_volume is not None
    return group.agent is None and mounted and group.role is None


def _volume(name: str, path: str, **source: Any) -> Rows:
    return [{"name": name, **source}], [{"name": name, "mountPath": path}]


def _agent(request: RenderRequest, group: PodGroup, scratch: bool) -> Iterator[Rows]:
    if group.agent is not None:
        items = [{"key": AGENT_KEY, "path": AGENT_KEY}, {"key": config_key(group), "path": AGENT_CONFIG}]
        if request.installer:
            items.append({"key": INSTALLER_KEY, "path": INSTALLER_KEY})
        yield _volume("stepset-agent", AGENT_DIR, configMap={"name": agent_config_map(request.run), "items": items})
    if scratch or group.agent is not None:
        yield _volume("stepset-run", RUN_DIR, emptyDir={})


def _code(request: RenderRequest, group: PodGroup) -> Iterator[Rows]:
    """Yields the volumes with the job's code. These volumes are always mounted read-only.

    If the pods have an agent, the agent copies the code to a writable directory.
    """
    shipped, volume = request.shipped, request.job.code_volume
    if volume is not None:
        if group.role is None:
            mount = without_empty(name=CODE_VOLUME, mountPath=CODE_DIR, subPath=volume.path or None, readOnly=True)
            yield [{"name": CODE_VOLUME, **volume.source}], [mount]
    elif group.agent is not None and (shipped or request.sources.archive is not None):
        yield _volume("stepset-source", SOURCE_DIR, configMap={"name": code_config_map(request.run)})
        yield _volume(CODE_VOLUME, CODE_DIR, emptyDir={})
    elif code_in_place(request, group):
        items = [{"key": file.key, "path": file.name} for file in shipped]
        yield _volume("stepset-source", CODE_DIR, configMap={"name": code_config_map(request.run), "items": items})


def _file(request: RenderRequest, file: PlanFile) -> Rows:
    items = [{"key": file.key, "path": file.key, "mode": _READ_ONLY}]
    config = {"name": file_config_map(request.run, file), "items": items}
    return _volume(file.name, posixpath.dirname(file.path), configMap=config)


def _shared_memory(group: PodGroup) -> Rows:
    """Returns a volume in memory that is mounted at /dev/shm.

    By default, /dev/shm has only 64 MB. This size is not sufficient for data loaders and NCCL.
    """
    return _volume(
        SHARED_MEMORY, "/dev/shm", emptyDir={"medium": "Memory", **without_empty(sizeLimit=group.resources.shm)}
    )


def _storage(request: RenderRequest) -> Rows:
    """Returns the volumes and mounts of the job's storage. There is one volume for each claim."""
    mounted = request.job.storage
    names = {claim: f"storage-{number}" for number, claim in enumerate(dict.fromkeys(each.claim for each in mounted))}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    mounts = [
        without_empty(
            name=names[each.claim], mountPath=each.path, subPath=each.sub_path, readOnly=each.read_only or None
        )
        for each in mounted
    ]
    return volumes, mounts
