"""Problems of a job's mount paths: paths that stepset uses itself, and paths that cannot be mounted."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.targets.validation.syntax import name_problem

_ROOT = "/stepset"
_SHARED_MEMORY = "/dev/shm"
_SSH_CONFIG = "/etc/ssh/ssh_config"


def mount_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """One line for each problem."""
    if plan.ssh is None and not job.storage:
        return
    ours = {_SHARED_MEMORY: "reserved by stepset"}
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
