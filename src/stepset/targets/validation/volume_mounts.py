"""Detects mount paths of a job that are invalid, or that stepset itself uses, and a /dev/shm that is too large."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.quantity import parse_quantity, read_quantity
from stepset.spec.template import is_whole, node_container, pod_spec
from stepset.targets.pods.volumes import SHARED_MEMORY
from stepset.targets.validation.syntax import name_problem
from stepset.unstructured import part, rows

_ROOT = "/stepset"
_SHARED_MEMORY_PATH = "/dev/shm"
_SSH_CONFIG = "/etc/ssh/ssh_config"


def mount_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each problem."""
    claim = job.code_volume.claim if job.code_volume is not None else None
    if claim is not None and (wrong := name_problem("code.claim", claim)):
        yield wrong
    if plan.ssh is None and not job.storage:
        return
    ours = {_SHARED_MEMORY_PATH: "reserved by stepset"}
    ours |= {posixpath.dirname(file.path): f"the directory of {file.path}" for file in plan.files}
    if plan.ssh is not None:
        ours[_SSH_CONFIG] = "reserved by stepset"
        field = "framework.ssh_auth_mount_path"
        yield from _place(field, plan.ssh.path, ours)
        ours[posixpath.normpath(plan.ssh.path)] = "the directory of the ssh keys"
    seen: set[str] = set()
    for number, storage in enumerate(job.storage):
        field = f"storage.{number}"
        if wrong := name_problem(f"{field}.claim", storage.claim):
            yield wrong
        yield from _place(f"{field}.path", storage.path, ours)
        path = posixpath.normpath(storage.path)
        if path in seen:
            yield f"{field}.path: {path} is mounted twice; give each volume its own path"
        seen.add(path)
        if storage.sub_path is not None and (storage.sub_path.startswith("/") or ".." in storage.sub_path.split("/")):
            yield f"{field}.sub_path: {storage.sub_path!r} is outside the volume; give a directory inside it"


def _place(field: str, given: str, ours: dict[str, str]) -> Iterator[str]:
    path = posixpath.normpath(given)
    if path == "/" or ":" in path:
        yield f"{field}: {given!r} cannot be a mount path; give a directory other than / and without ':'"
    elif path == _ROOT or path.startswith(f"{_ROOT}/"):
        yield f"{field}: {path} is reserved by stepset; give another path"
    elif path in ours:
        yield f"{field}: {path} is {ours[path]}; give another path"


def shared_memory_problems(job: TrainingJob) -> Iterator[str]:
    """Yields a problem if the size of /dev/shm in `pod_template` is not a Kubernetes quantity."""
    field, size = _shared_memory_size(job)
    try:
        read_quantity(size)
    except ValueError as error:
        yield f"{field}: {error}"


def shared_memory_notes(job: TrainingJob) -> Iterator[str]:
    """Yields a note if `pod_template` makes /dev/shm of the nodes larger than their memory, which Kubernetes allows.

    The size in `pod_template` must be a Kubernetes quantity.
    """
    (field, size), memory = _shared_memory_size(job), job.node_resources().limits.get("memory")
    if memory is not None and parse_quantity(read_quantity(size)) > parse_quantity(memory):
        yield f"{field}: {size} is more than the memory {memory}, which includes /dev/shm"


def _shared_memory_size(job: TrainingJob) -> tuple[str, Any]:
    """Returns the path and the value of the size of /dev/shm in `pod_template`. The value is 0 if there is no size.

    /dev/shm is the volume `dshm` of stepset, or another volume that the training container mounts at /dev/shm.
    """
    spec, mounts = pod_spec(job.pod_template), rows(node_container(job.pod_template), "volumeMounts")
    paths = [(str(mount.get("name")), posixpath.normpath(str(mount.get("mountPath")))) for mount in mounts]
    mounted = [name for name, path in paths if path == _SHARED_MEMORY_PATH]
    name = mounted[-1] if mounted else SHARED_MEMORY
    volume = next((volume for volume in rows(spec, "volumes") if volume.get("name") == name), {})
    medium = "Memory" if name == SHARED_MEMORY else None
    given = part(volume, "emptyDir")
    field = f"pod_template{'.spec' if is_whole(job.pod_template) else ''}.volumes.{name}.emptyDir.sizeLimit"
    in_memory = given.get("medium", medium) == "Memory"
    return field, given["sizeLimit"] if in_memory and given.get("sizeLimit") is not None else 0
