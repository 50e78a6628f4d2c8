"""Converts a plan into the pods of one attempt, with their addresses, paths, environment, commands and agent configs.

Contains only pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.backends.base import RunRequest
from stepset.backends.local.environment import Host, local_entries
from stepset.backends.local.leftovers import POD_MARK
from stepset.backends.local.net import Claims
from stepset.errors import BadInputError
from stepset.plan.env import secret_variables
from stepset.plan.expand import expand
from stepset.plan.model import LAUNCHER, NODE, LaunchPlan, PodGroup
from stepset.plan.ranks import command_is_rank, rank_config
from stepset.plan.values import (
    Attempt,
    CodePath,
    FieldValue,
    FirstNode,
    LocalRank,
    MountedFile,
    NodeRank,
    OwnDeviceFirst,
    Part,
    PodHost,
    PortNumber,
    ProcessRank,
    RendezvousId,
    ResultFile,
    RunName,
    SecretValue,
    Text,
    Value,
    resolve,
)

LAUNCHER_ADDRESS = "127.0.0.1"
"""The address of a launcher that is also a node. mpirun itself starts the ranks of this node. mpirun starts all other
ranks through rsh."""
_PER_PROCESS = {
    ProcessRank: "{rank}",
    LocalRank: "{local_rank}",
    # The agent replaces `{devices}` by the devices that `local_entries` sets for the pod. The plan's devices may not
    # exist on this machine.
    OwnDeviceFirst: "{devices}",
    FirstNode: "{first}",
}


def has_spaces(path: Path) -> bool:
    """Returns whether a command line would split a path at spaces."""
    return str(path).split() != [str(path)]


@dataclass(frozen=True)
class RunLayout:
    """The directories, addresses and metadata of a run's simulated nodes.

    Args:
        run: the name of the run.
        directory: the directory of the run.
        scratch: a directory with a short path, because the path of a socket has at most 107 bytes.
        code_dir: the directory of the job's code.
        work_dir: the working directory of the commands.
        addresses: the IP address of each pod, by the name of the pod.
        grace: the number of seconds between SIGTERM and SIGKILL.
        labels, annotations: the labels and annotations of the job. A variable can have the value of a label or an
            annotation.
        rendezvous_id: a random string.
    """

    run: str
    directory: Path
    scratch: Path
    code_dir: Path
    work_dir: Path
    addresses: Mapping[str, str]
    grace: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    rendezvous_id: str

    @property
    def rsh(self) -> Path:
        """The path of the program that replaces ssh.

        If possible, the path contains no spaces, because Open MPI splits a path at spaces.
        """
        places = (self.directory, self.scratch)
        return next((place for place in places if not has_spaces(place)), self.directory) / "rsh"


@dataclass(frozen=True)
class PodSpec:
    """One local pod, ready to be started.

    Args:
        name: the name `<group>-<index>`.
        source: the source (`LogLine.source`) of the lines that the agent itself prints.
        node: the simulated node, such as `node 1`. Empty for a pod without ranks.
        directory: the pod's own directory.
        env, command: the complete environment and command line of the agent.
        config: the agent's configuration.
        serves: whether the agent serves `rsh` requests. If True, the pod is ready when the agent has reported that it
            serves requests.
    """

    name: str
    group: str
    index: int
    source: str
    node: str
    directory: Path
    env: Mapping[str, str]
    command: tuple[str, ...]
    config: Mapping[str, Any]
    serves: bool = False


@dataclass(frozen=True)
class Assignment:
    """The input of a supervisor.

    Args:
        claims: the claimed addresses and ports. The supervisor releases the claims when the run has finished.
        specs: the pods of the first attempt.
        ports: the port numbers of the first attempt, by the name of the port.
        guarded: whether a guard must block connections from other machines to the ports.
    """

    request: RunRequest
    plan: LaunchPlan
    host: Host
    layout: RunLayout
    claims: Claims
    specs: Sequence[PodSpec]
    ports: dict[str, int]
    guarded: bool


def pod_name(group: str, index: int) -> str:
    """Returns a local pod's name."""
    return f"{group}-{index}"


def pod_addresses(plan: LaunchPlan, free: list[str]) -> dict[str, str]:
    """Returns the address of each pod, by the pod's name. `free` must contain one address for each pod of the plan."""
    pods = [(group, pod_name(group.name, k)) for group in plan.groups for k in range(group.count)]
    return {
        pod: LAUNCHER_ADDRESS if group.name == LAUNCHER and group.in_world else address
        for (group, pod), address in zip(pods, free, strict=True)
    }


def plan_files(plan: LaunchPlan, layout: RunLayout, ports: Mapping[str, int]) -> dict[Path, str]:
    """Returns the small files that a plan needs, as a mapping from the path to the content."""
    places = _PodText(plan, layout, ports, attempt=0, pod=0, group="")
    return {
        _file_path(layout, file.name, file.key): "".join(resolve(line, places) + "\n" for line in file.lines)
        for file in plan.files
    }


def pod_specs(plan: LaunchPlan, host: Host, layout: RunLayout, ports: Mapping[str, int], attempt: int) -> list[PodSpec]:
    """Returns all pods of a plan, in the order of its groups. The pods use the ports of this attempt.

    Raises:
        BadInputError: a variable uses a pod field that does not exist locally, or a string contains a NUL character.
    """
    return [
        _spec(plan, group, index, host, layout, _PodText(plan, layout, ports, attempt, index, group.name))
        for group in plan.groups
        for index in range(group.count)
    ]


def _spec(plan: LaunchPlan, group: PodGroup, index: int, host: Host, layout: RunLayout, places: _PodText) -> PodSpec:
    name = pod_name(group.name, index)
    directory = layout.directory / "pods" / name
    address = layout.addresses[name]
    own = _plan_env(group, places, host, layout, name, address)
    env = {**host.environ, **own}
    for entry in local_entries(
        plan, group, index, host, address=address, rsh=layout.rsh, scratch=layout.scratch / name
    ):
        if entry.name not in own and isinstance(entry.value, Text):
            env[entry.name] = resolve(entry.value, places)
    env |= {POD_MARK: str(directory), "STEPSET_LIFELINE": "1"}
    command = [expand(resolve(word, places), own) for word in (*group.command, *group.args)]
    # The error does not contain the string itself, because the string can be the value of a secret.
    if bad := [
        *(f"the variable {name!r}" for name in env if "\0" in name + env[name]),
        *(f"word {number} of the command" for number, word in enumerate(command, 1) if "\0" in word),
    ]:
        raise BadInputError(f"{group.name}: {bad[0]} contains a NUL character; remove it")
    config = _config(plan, group, index, layout, places, directory)
    return PodSpec(
        name=name,
        group=group.name,
        index=index,
        source=config["source"],
        node=_node(plan, group, index),
        directory=directory,
        env=env,
        command=(host.python, "-I", "-S", str(host.agent), "run", str(directory / "config.json"), "--", *command),
        config=config,
        serves=group.serves_ssh,
    )


def _node(plan: LaunchPlan, group: PodGroup, index: int) -> str:
    if group.name == NODE:
        return f"node {index}"
    return f"node {plan.world.num_nodes - 1}" if group.name == LAUNCHER and group.in_world else ""


def _plan_env(
    group: PodGroup, places: _PodText, host: Host, layout: RunLayout, pod: str, address: str
) -> dict[str, str]:
    """Returns the plan's variables. A variable can refer to variables that precede it, as on Kubernetes."""
    env: dict[str, str] = {}
    for entry in group.env:
        value: Value | None = entry.value
        if isinstance(value, Text) and value.needs_agent:
            value = entry.pod_value
        if isinstance(value, Text):
            env[entry.name] = expand(resolve(value, places), env)
        elif isinstance(value, SecretValue):
            env[entry.name] = host.secrets[value.secret, value.key]
        elif isinstance(value, FieldValue):
            env[entry.name] = _field(value.path, entry.name, layout, pod, address, host.name)
    return env


def _config(
    plan: LaunchPlan, group: PodGroup, index: int, layout: RunLayout, places: _PodText, directory: Path
) -> dict[str, Any]:
    """Returns the agent's config (docs/design/agent.md).

    The agent need not resolve names, because the config contains the IP addresses of peers.
    """
    settings = group.agent
    sources = {NODE: f"node {index}", LAUNCHER: "launcher"}
    config: dict[str, Any] = {
        "version": 1,
        "group": group.name,
        "source": sources.get(group.name, pod_name(group.name, index)),
        "in_world": settings is not None,
        "dir": str(directory),
        "termination_log": str(directory / "termination-log"),
        "work_dir": str(layout.work_dir),
        "grace": layout.grace,
    }
    if group.serves_ssh:
        config["serve"] = str(layout.scratch / layout.addresses[pod_name(group.name, index)])
    if secrets := secret_variables(plan):
        config["secrets"] = secrets
    if settings is None:
        return config
    config |= rank_config(plan, settings)
    if settings.wrap is not None:
        config["launcher"] = [resolve(word, places) for word in settings.wrap.launcher]
        config["program"] = [resolve(word, places) for word in settings.wrap.program]
        config["command_len"] = len(group.command)
    elif command_is_rank(plan, group):
        config["processes"] = settings.processes
    per_process = {
        e.name: resolve(e.value, places) for e in group.env if isinstance(e.value, Text) and e.value.needs_agent
    }
    if per_process:
        config["process_env"] = per_process
        if "processes" not in config and plan.world.procs_per_node is not None:
            config["procs_per_node"] = plan.world.procs_per_node
    return config


@dataclass(frozen=True)
class _PodText:
    """For one local pod, returns the text that replaces a placeholder of the plan."""

    plan: LaunchPlan
    layout: RunLayout
    ports: Mapping[str, int]
    attempt: int
    pod: int
    group: str

    def __call__(self, part: Part) -> str:
        layout = self.layout
        match part:
            case PodHost(group, index):
                return layout.addresses[pod_name(group, index)]
            case PortNumber(name):
                return str(self.ports[name])
            case CodePath(path):
                return str(layout.code_dir / path)
            case MountedFile(name):
                return str(_file_path(layout, name, next(f.key for f in self.plan.files if f.name == name)))
            case ResultFile():
                return str(layout.directory / "pods" / pod_name(self.group, self.pod) / "result")
            case RunName():
                return layout.run
            case RendezvousId():
                return layout.rendezvous_id
            case NodeRank():
                return str(self.pod)
            case Attempt():
                return str(self.attempt)
            case str():
                return part
        return _PER_PROCESS[type(part)]


def _file_path(layout: RunLayout, name: str, key: str) -> Path:
    return layout.directory / "files" / name / key


def _field(path: str, variable: str, layout: RunLayout, pod: str, address: str, machine: str) -> str:
    """Returns the local value of a field of the pod (the downward API of Kubernetes)."""
    known = {
        "metadata.name": pod,
        "metadata.namespace": "default",
        "metadata.uid": f"{layout.run}.{pod}",
        "spec.nodeName": machine,
        "spec.serviceAccountName": "default",
        "status.hostIP": address,
        "status.hostIPs": address,
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path in known:
        return known[path]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return (layout.labels if match.group(1) == "labels" else layout.annotations).get(match.group(2), "")
    raise BadInputError(
        f"env.{variable}: the field {path!r} does not exist in a local run; use one of {', '.join(known)},"
        " metadata.labels['NAME'] and metadata.annotations['NAME']"
    )
