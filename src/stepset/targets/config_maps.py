"""ConfigMaps and the Secret of a run: the agent, the code, the plan's small files, the ssh keys."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.plan.code import FUNCTION_FILE, script_in_code
from stepset.plan.model import PlanFile
from stepset.plan.values import resolve
from stepset.targets.metadata import metadata
from stepset.targets.names import InManifest, PodNames
from stepset.targets.optional_fields import given
from stepset.targets.request import RenderRequest

AGENT_KEY = "agent.py"
ARCHIVE_KEY = "code.tar.gz"
SSH_PRIVATE_KEY = "ssh-privatekey"
SSH_PUBLIC_KEY = "ssh-publickey"

CONFIG_MAP_LIMIT = 1024 * 1024
"""Bytes of all values of one ConfigMap (kubernetes v1.36 pkg/apis/core/validation, MaxSecretSize)."""

_KEY = re.compile(r"^[-._a-zA-Z0-9]{1,253}$")


@dataclass(frozen=True)
class ShippedFile:
    """A file of the job that is not part of an archive."""

    name: str  # in the pods
    content: bytes

    @property
    def key(self) -> str:
        """Its key in the ConfigMap, which allows fewer characters than a file system."""
        return self.name if _KEY.match(self.name) and self.name != ARCHIVE_KEY else "main.py"


def shipped_files(request: RenderRequest) -> tuple[ShippedFile, ...]:
    """The script if there is no code directory, or the function."""
    job = request.job
    if job.function is not None:
        return (ShippedFile(FUNCTION_FILE, job.function.encode()),)
    if request.sources.script is not None:
        return (ShippedFile(script_in_code(job), request.sources.script),)
    return ()


def agent_name(request: RenderRequest) -> str:
    """Name of the ConfigMap with the agent and its configurations."""
    return f"{request.run}-agent"


def code_name(request: RenderRequest) -> str:
    """Name of the ConfigMap with the job's code."""
    return f"{request.run}-code"


def file_name(request: RenderRequest, file: PlanFile) -> str:
    """Name of the ConfigMap with one of the plan's files; MPI's hostfile is named as by Kubeflow Trainer."""
    return f"{request.run}-{file.name}"


def secret_name(request: RenderRequest) -> str:
    """Name of the Secret with the run's ssh keys; as named by Kubeflow Trainer."""
    return f"{request.run}-mpi-ssh-auth"


def placeholder(key: str) -> str:
    """The value of a key in a rendered Secret, until the backend creates one.

    >>> placeholder("ssh-privatekey")
    '<ssh-privatekey: made when the run is submitted>'
    """
    return f"<{key}: made when the run is submitted>"


def agent_object(request: RenderRequest, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The ConfigMap with the agent and the configurations (file name -> content)."""
    files = {key: f"{json.dumps(config, indent=2)}\n" for key, config in configs.items()}
    return config_map(request, agent_name(request), data={**files, AGENT_KEY: request.agent})


def code_object(request: RenderRequest) -> dict[str, Any] | None:
    """The ConfigMap with the job's code; None without code."""
    contents = {file.key: file.content for file in shipped_files(request)}
    if request.sources.archive is not None:
        contents[ARCHIVE_KEY] = request.sources.archive
    if not contents:
        return None
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, content in contents.items():
        try:
            data[key] = content.decode("utf-8")
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode("ascii")
    return config_map(request, code_name(request), data=data, binary=binary)


def file_object(request: RenderRequest, file: PlanFile, names: PodNames) -> dict[str, Any]:
    """The ConfigMap with one of the plan's files."""
    in_manifest = InManifest(names)
    content = "".join(f"{resolve(line, in_manifest)}\n" for line in file.lines)
    return config_map(request, file_name(request, file), data={file.key: content})


def ssh_secret(request: RenderRequest) -> dict[str, Any]:
    """The Secret for the run's ssh keys, with placeholders: the backend creates keys, which are never rendered.

    Type, names and immutability are those of Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go).
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(request, secret_name(request)),
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
        "stringData": {key: placeholder(key) for key in (SSH_PRIVATE_KEY, SSH_PUBLIC_KEY)},
    }


def config_map(
    request: RenderRequest, name: str, *, data: Mapping[str, str], binary: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An immutable ConfigMap: all pods of a run must see the same, and kubelets need not watch it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(request, name),
        "immutable": True,
        **given(data=dict(data), binaryData=dict(binary or {})),
    }


def content_size(config: Mapping[str, Any]) -> int:
    """Bytes of a ConfigMap's values, as the API server counts them."""
    text = sum(len(value.encode()) for value in config.get("data", {}).values())
    return text + sum(len(base64.b64decode(value)) for value in config.get("binaryData", {}).values())
