"""ConfigMaps and the Secret of a run: the agent, the code, the plan's small files, the ssh keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from stepset.plan.model import PlanFile
from stepset.plan.values import resolve
from stepset.targets.metadata import metadata
from stepset.targets.names import RENDEZVOUS_KEY, InManifest, PodNames, agent_config_map
from stepset.targets.optional_fields import without_empty
from stepset.targets.request import RenderRequest
from stepset.targets.shipped_files import ARCHIVE_KEY

AGENT_KEY = "agent.py"
SSH_PRIVATE_KEY = "ssh-privatekey"
SSH_PUBLIC_KEY = "ssh-publickey"

CONFIG_MAP_LIMIT = 1024 * 1024
"""Bytes of all values of one ConfigMap (kubernetes v1.36 pkg/apis/core/validation, MaxSecretSize)."""

_JSON = json.JSONEncoder()


def agent_name(request: RenderRequest) -> str:
    """Name of the ConfigMap with the agent and its configurations."""
    return agent_config_map(request.run)


def code_name(request: RenderRequest) -> str:
    """Name of the ConfigMap with the job's code."""
    return f"{request.run}-code"


def file_name(request: RenderRequest, file: PlanFile) -> str:
    """Name of the ConfigMap with one of the plan's files; Kubeflow Trainer uses the same name for MPI's hostfile."""
    return f"{request.run}-{file.name}"


def secret_name(request: RenderRequest) -> str:
    """Name of the Secret with the run's ssh keys; Kubeflow Trainer uses the same name."""
    return f"{request.run}-mpi-ssh-auth"


def placeholder(key: str) -> str:
    """The value of a key in a rendered Secret or ConfigMap, until the backend generates one.

    >>> placeholder("ssh-privatekey")
    '<ssh-privatekey: made when the run is submitted>'
    """
    return f"<{key}: made when the run is submitted>"


def agent_object(request: RenderRequest, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The ConfigMap with the agent and the configurations (file name -> content), and the run's rendezvous ID."""
    files = {key: _one_line_each(config) for key, config in configs.items()}
    agent = {AGENT_KEY: request.agent} if configs else {}
    # In a ConfigMap, so that permission to read pods or workloads does not reveal the ID.
    rendezvous = {RENDEZVOUS_KEY: placeholder(RENDEZVOUS_KEY)} if request.plan.has_rendezvous_id else {}
    return config_map(request, agent_name(request), data={**rendezvous, **files, **agent})


def _one_line_each(config: Mapping[str, Any]) -> str:
    """A JSON object with one line for each key; the keys are the agent's, which need no escapes.

    >>> print(_one_line_each({"version": 1, "files": [{"mode": "0644"}]}), end="")
    {
      "version": 1,
      "files": [{"mode": "0644"}]
    }
    """
    # A whole number has the same text in JSON; each call of the encoder would cost its set-up.
    rows = [f'  "{k}": {value if type(value) is int else _JSON.encode(value)}' for k, value in config.items()]
    lines = ",\n".join(rows)
    return f"{{\n{lines}\n}}\n"


def code_object(request: RenderRequest) -> dict[str, Any] | None:
    """The ConfigMap with the job's code; None without code."""
    contents = {file.key: file.content for file in request.shipped}
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
    """An immutable ConfigMap: all pods of a run see the same content, and kubelets need not watch it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(request, name),
        "immutable": True,
        **without_empty(data=dict(data), binaryData=dict(binary or {})),
    }


def content_size(config: Mapping[str, Any]) -> int:
    """Bytes of a ConfigMap's values, as the API server counts them."""
    text = sum(len(value) if value.isascii() else len(value.encode()) for value in config.get("data", {}).values())
    return text + sum(len(base64.b64decode(value)) for value in config.get("binaryData", {}).values())
