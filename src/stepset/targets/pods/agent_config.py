"""Renders the agent's configuration for a pod.

The section "CONFIG.json" of docs/design/agent.md describes this configuration.
"""

from __future__ import annotations

from typing import Any

from stepset.plan.env import secret_variables
from stepset.plan.model import LAUNCHER, NODE, WAIT_FOR_ALL, PodGroup
from stepset.plan.ranks import command_is_rank, rank_config
from stepset.plan.values import resolve
from stepset.spec.template import node_container, node_secret_names
from stepset.targets.names import CODE_DIR, RUN_DIR, SOURCE_DIR, InManifest, PodNames
from stepset.targets.pods.env import process_env
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.ssh import PRIVATE_KEY, agent_files, server_prefix
from stepset.targets.request import RenderRequest
from stepset.targets.shipped_files import ARCHIVE_KEY

_SOURCES = {NODE: "node {node_rank}", LAUNCHER: "launcher"}


def config_key(group: PodGroup) -> str:
    """Returns the key of a group's configuration in the ConfigMap of the agent."""
    return f"{group.name}.json"


def agent_config(request: RenderRequest, group: PodGroup, names: PodNames, grace: int) -> dict[str, Any]:
    """Returns the configuration of the agent in the pods of a group.

    Args:
        grace: the number of seconds between SIGTERM and SIGKILL.
    """
    settings = group.agent
    assert settings is not None
    plan = request.plan
    in_manifest = InManifest(names)
    config: dict[str, Any] = {
        "version": 1,
        "group": group.name,
        "source": _SOURCES.get(group.name, f"{group.name}-{{node_rank}}"),
        "in_world": group.role is None,
        "dir": RUN_DIR,
        "grace": grace,
        "peer_timeout": settings.peer_timeout,
        "peers": [
            {
                "pattern": names.host(name, "{index}"),
                "count": plan.group(name).count if plan.group(name).count <= WAIT_FOR_ALL else 1,
            }
            for name in settings.wait_for
        ],
    }
    if request.attempt:
        config["attempt"] = request.attempt
    if command_is_rank(plan, group):
        config["processes"] = settings.processes
    if per_process := process_env(group.env, names):
        config["process_env"] = per_process
        if "processes" not in config and any("{rank}" in value for value in per_process.values()):
            config["procs_per_node"] = plan.world.procs_per_node
    if settings.wrap:
        prefix = server_prefix(request, group)
        config["launcher"] = [*prefix, *(resolve(word, in_manifest) for word in settings.wrap.launcher)]
        config["program"] = [resolve(word, in_manifest) for word in settings.wrap.program]
        config["command_len"] = len(prefix) + len(group.command)
    return {**config, **rank_config(plan, settings), **_secrets(request, group), **_files(request, group)}


def _secrets(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    """Returns the fields `secrets` and `secret_files` of the configuration.

    The fields contain the names of variables and the paths of files. These variables and files contain secrets. The
    agent's reports do not contain these secrets.
    """
    names = {*secret_variables(request.plan), *node_secret_names(overlay_of(request.job, group))}
    ssh = request.plan.ssh
    files = [f"{ssh.path}/{PRIVATE_KEY}"] if ssh is not None and group.name in ssh.groups else []
    return ({"secrets": sorted(names)} if names else {}) | ({"secret_files": files} if files else {})


def _files(request: RenderRequest, group: PodGroup) -> dict[str, Any]:
    shipped = request.shipped
    files = [
        {"source": f"{SOURCE_DIR}/{file.key}", "path": f"{CODE_DIR}/{file.name}", "mode": "0644"} for file in shipped
    ]
    ssh = request.plan.ssh
    if ssh is not None and group.name in ssh.groups:
        files += agent_files(ssh)
    config: dict[str, Any] = {"files": files} if files else {}
    if request.sources.archive is not None:
        config |= {"code_archive": f"{SOURCE_DIR}/{ARCHIVE_KEY}", "code_dir": CODE_DIR}
    has_code = request.sources.archive is not None or shipped or request.job.code_volume is not None
    if has_code and not node_container(overlay_of(request.job, group)).get("workingDir"):
        config["work_dir"] = CODE_DIR
    return config
