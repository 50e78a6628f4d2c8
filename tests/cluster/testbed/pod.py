"""Pod specs that can run on the cluster: an image, and on the test cluster the machine's programs mounted read-only."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .image import USR_LINKS


@dataclass(frozen=True)
class Mount:
    """A directory of the machine that is mounted in a pod at the same path.

    Args:
        path: absolute path of an existing directory.
        read_only: whether the mount is read-only.
    """

    path: str
    read_only: bool = True


def host_programs() -> list[Mount]:
    """Mounts of the machine's programs, and of this process's Python with its packages."""
    roots = [Path("/", name) for name in USR_LINKS]
    paths = ["/usr", *(str(root) for root in roots if root.is_dir() and not root.is_symlink())]
    for prefix in (sys.prefix, sys.base_prefix, str(Path(sys.base_prefix).resolve())):
        if not any(Path(prefix).is_relative_to(path) for path in paths):
            paths.append(prefix)
    return [Mount(path) for path in paths]


def template(container: str, mounts: Iterable[Mount]) -> dict[str, Any]:
    """Returns a pod template to merge over another one; lists are merged by their merge keys.

    Args:
        container: name of the container that gets the mounts.
        mounts: directories of the machine; empty on a cluster whose image contains all programs.
    """
    named = {f"host-{index}": mount for index, mount in enumerate(mounts)}
    volume_mounts = [
        {"name": name, "mountPath": mount.path, "readOnly": mount.read_only} for name, mount in named.items()
    ]
    volumes = [{"name": name, "hostPath": {"path": mount.path}} for name, mount in named.items()]
    # Never on the test cluster: it has no registry, and a misspelt image fails at once.
    policy = "Never" if named else "IfNotPresent"
    patch: dict[str, Any] = {"name": container, "imagePullPolicy": policy}
    if not named:
        return {"spec": {"containers": [patch]}}
    return {"spec": {"containers": [{**patch, "volumeMounts": volume_mounts}], "volumes": volumes}}


def runnable(container: str, command: list[str], image: str, mounts: Iterable[Mount]) -> dict[str, Any]:
    """Returns a complete pod spec that runs one command and never restarts."""
    spec: dict[str, Any] = template(container, mounts)["spec"]
    spec["containers"][0].update(image=image, command=command)
    return {"restartPolicy": "Never", **spec}
