"""Renders the ConfigMaps and the Secret of a run.

The ConfigMaps contain the agent, the code and the files of the plan. The Secret contains the ssh keys.
"""

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
INSTALLER_KEY = "install.py"
SSH_PRIVATE_KEY = "ssh-privatekey"
SSH_PUBLIC_KEY = "ssh-publickey"
SSH_KNOWN_HOSTS = "ssh-known-hosts"

CONFIG_MAP_LIMIT = 1024 * 1024
"""The maximum total size of the values of a ConfigMap, in bytes.

Source: kubernetes v1.36 pkg/apis/core/validation (MaxSecretSize).
"""

_JSON = json.JSONEncoder()


def agent_name(request: RenderRequest) -> str:
    """Returns the name of the ConfigMap that contains the agent and the agent's configuration files."""
    return agent_config_map(request.run)


def code_name(request: RenderRequest) -> str:
    """Returns the name of the ConfigMap with the job's code."""
    return f"{request.run}-code"


def file_name(request: RenderRequest, file: PlanFile) -> str:
    """Returns the name of the ConfigMap with one of the plan's files.

    Kubeflow Trainer uses the same name for the ConfigMap with the host file of an MPI job.
    """
    return f"{request.run}-{file.name}"


def secret_name(request: RenderRequest) -> str:
    """Returns the name of the Secret with the run's ssh keys. This is also the name that Kubeflow Trainer uses."""
    return f"{request.run}-mpi-ssh-auth"


def placeholder(key: str) -> str:
    """Returns a placeholder for a generated value in a Secret or ConfigMap.

    The backend replaces the placeholder when it submits the run.

    >>> placeholder("ssh-privatekey")
    '<ssh-privatekey: made when the run is submitted>'
    """
    return f"<{key}: made when the run is submitted>"


def agent_object(request: RenderRequest, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the ConfigMap with the agent, the agent's configuration files and the rendezvous ID of the run.

    Args:
        configs: a mapping from the names of the configuration files to their content. If the mapping is empty, the
            ConfigMap does not contain the agent.
    """
    files = {key: _one_line_each(config) for key, config in configs.items()}
    agent = {AGENT_KEY: request.agent} if configs else {}
    if request.installer:
        agent[INSTALLER_KEY] = request.installer
    # The rendezvous ID is not in the pod templates. Therefore users who may only read pods cannot read the ID.
    rendezvous = {RENDEZVOUS_KEY: placeholder(RENDEZVOUS_KEY)} if request.plan.has_rendezvous_id else {}
    return config_map(request, agent_name(request), data={**rendezvous, **files, **agent})


def _one_line_each(config: Mapping[str, Any]) -> str:
    """Formats a configuration as a JSON object with one line for each key. Keys are not escaped.

    >>> print(_one_line_each({"version": 1, "files": [{"mode": "0644"}]}), end="")
    {
      "version": 1,
      "files": [{"mode": "0644"}]
    }
    """
    # Integers are written the same in JSON as in Python. Formatting integers without the encoder is faster.
    rows = [f'  "{k}": {value if type(value) is int else _JSON.encode(value)}' for k, value in config.items()]
    lines = ",\n".join(rows)
    return f"{{\n{lines}\n}}\n"


def code_object(request: RenderRequest) -> dict[str, Any] | None:
    """Returns the ConfigMap with the job's code, or None if the ConfigMap would be empty."""
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
    """Returns the ConfigMap with one of the plan's files."""
    in_manifest = InManifest(names)
    content = "".join(f"{resolve(line, in_manifest)}\n" for line in file.lines)
    return config_map(request, file_name(request, file), data={file.key: content})


def ssh_secret(request: RenderRequest) -> dict[str, Any]:
    """Returns the Secret for the run's ssh keys.

    The Secret contains placeholders instead of keys. The backend generates the keys when it submits the run. Kubeflow
    Trainer creates a Secret with the same name and type (v2.3.0 pkg/runtime/framework/plugins/mpi/mpi.go), but without
    the known_hosts file. The Secrets of stepset and of Trainer are immutable.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(request, secret_name(request)),
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
        "stringData": {key: placeholder(key) for key in (SSH_PRIVATE_KEY, SSH_PUBLIC_KEY, SSH_KNOWN_HOSTS)},
    }


def config_map(
    request: RenderRequest, name: str, *, data: Mapping[str, str], binary: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns an immutable ConfigMap.

    All pods of a run thus get the same content. In addition, kubelets do not watch immutable ConfigMaps.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(request, name),
        "immutable": True,
        **without_empty(data=dict(data), binaryData=dict(binary or {})),
    }


def content_size(config: Mapping[str, Any]) -> int:
    """Returns the total size of a ConfigMap's values in bytes. The API server limits this size."""
    text = sum(len(value) if value.isascii() else len(value.encode()) for value in config.get("data", {}).values())
    return text + sum(len(base64.b64decode(value)) for value in config.get("binaryData", {}).values())
