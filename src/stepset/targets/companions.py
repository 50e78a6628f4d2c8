"""Renders all objects of a run except the workload.

These objects are the ConfigMaps, the Secret with the ssh keys of an MPI job, the NetworkPolicy and the Service. The
ConfigMaps contain the agent, the code, the files of the plan and the configuration of ssh.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from stepset.plan.model import PlanFile
from stepset.plan.values import resolve
from stepset.targets.metadata import RUN, metadata
from stepset.targets.names import (
    AGENT_KEY,
    INSTALLER_KEY,
    RENDEZVOUS_KEY,
    SSH_KNOWN_HOSTS,
    SSH_PRIVATE_KEY,
    SSH_PUBLIC_KEY,
    InManifest,
    PodNames,
    agent_config_map,
    code_config_map,
    file_config_map,
    placeholder,
    ssh_config_map,
    ssh_secret,
)
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods import ssh
from stepset.targets.pods.agent_config import agent_config, config_key
from stepset.targets.pods.template import grace_of
from stepset.targets.request import RenderRequest
from stepset.targets.shipped_files import ARCHIVE_KEY

_JSON = json.JSONEncoder()


def companions(
    request: RenderRequest, names: PodNames, trainer_volumes: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Returns all objects of a run except the workload and the headless Service.

    Args:
        trainer_volumes: the names of volumes. Kubeflow Trainer creates the ConfigMaps and Secrets for these volumes.
            Therefore the result does not contain these ConfigMaps and Secrets.
    """
    plan = request.plan
    configs = {
        config_key(group): agent_config(request, group, names, grace_of(request.job, group))
        for group in plan.groups
        if group.agent is not None
    }
    code = _code(request)
    # The NetworkPolicy must exist before any pod starts. Pods cannot start before the ConfigMaps exist, so the
    # NetworkPolicy precedes the ConfigMaps.
    objects = [_network_policy(request)] if request.job.network.policy else []
    objects += [_agent(request, configs)] if configs or plan.has_rendezvous_id else []
    objects += [code] if code else []
    objects += [_plan_file(request, file, names) for file in plan.files if file.name not in trainer_volumes]
    if plan.ssh is not None:
        own_secret = ssh.SECRET_VOLUME not in trainer_volumes
        files = ssh.config_files(request, plan.ssh, names, own_secret=own_secret)
        objects.append(config_map(request, ssh_config_map(request.run), data=files))
        objects += [_ssh_secret(request)] if own_secret else []
    return objects


def _agent(request: RenderRequest, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
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
    return config_map(request, agent_config_map(request.run), data={**rendezvous, **files, **agent})


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


def _code(request: RenderRequest) -> dict[str, Any] | None:
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
    return config_map(request, code_config_map(request.run), data=data, binary=binary)


def _plan_file(request: RenderRequest, file: PlanFile, names: PodNames) -> dict[str, Any]:
    """Returns the ConfigMap with one of the plan's files."""
    in_manifest = InManifest(names)
    content = "".join(f"{resolve(line, in_manifest)}\n" for line in file.lines)
    return config_map(request, file_config_map(request.run, file), data={file.key: content})


def _ssh_secret(request: RenderRequest) -> dict[str, Any]:
    """Returns the Secret for the run's ssh keys.

    The Secret contains placeholders instead of keys. The backend generates the keys when it submits the run. Kubeflow
    Trainer creates a Secret with the same name and type (v2.3.0 pkg/runtime/framework/plugins/mpi/mpi.go), but without
    the known_hosts file. The Secrets of stepset and of Trainer are immutable.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(request, ssh_secret(request.run)),
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


def _network_policy(request: RenderRequest) -> dict[str, Any]:
    """Returns the NetworkPolicy of a run. Only pods of the run may connect to pods of the run.

    The policy restricts incoming connections on all ports. Outgoing connections are not restricted. The policy selects
    the pods of the run by a label. The policy does not protect against accounts that may create pods, because their
    pods can have the same label (docs/security.md).
    """
    own_pods = {"matchLabels": {RUN: request.run}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(request, request.run),
        "spec": {
            "podSelector": own_pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": own_pods}]}],
        },
    }


def headless_service(request: RenderRequest) -> dict[str, Any]:
    """Returns the headless Service that gives pods their DNS names. For some targets, a controller creates the Service.

    The Service publishes the DNS names of pods before the pods are ready, because ranks connect to each other when they
    start.
    """
    ports = [{"name": name, "port": port} for name, port in request.plan.ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(request, request.subdomain),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN: request.run},
            **without_empty(ports=ports),
        },
    }
