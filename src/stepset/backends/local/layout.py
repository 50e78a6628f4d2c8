"""From a plan to the pods of one attempt: addresses, paths, environment, command and agent config. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.backends.local.environment import Host, local_entries
from stepset.backends.local.leftovers import POD_MARK
from stepset.errors import BadInputError
from stepset.plan.expand import expand
from stepset.plan.model import LAUNCHER, NODE, LaunchPlan, PodGroup
from stepset.plan.ranks import command_is_rank
from stepset.plan.values import (
    Attempt,
    CodePath,
    FieldValue,
    FirstNode,
    LocalRank,
    MountedFile,
    NodeRank,
    Part,
    PodHost,
    PortNumber,
    ProcessRank,
    ResultFile,
    RunName,
    SecretValue,
    Text,
    Value,
    resolve,
)

LAUNCHER_ADDRESS = "127.0.0.1"
"""Of a launcher that is a node too: MPIs play the node of this address themselves, and reach all others by rsh."""
_PER_PROCESS = {ProcessRank: "{rank}", LocalRank: "{local_rank}", FirstNode: "{first}"}


def has_spaces(path: Path) -> bool:
    """Whether a path would be split as part of a command line."""
    return str(path).split() != [str(path)]


@dataclass(frozen=True)
class Site:
    """Where a run takes place.

    Args:
        directory: the run directory.
        scratch: a directory with a short path: a socket's path has at most 107 bytes.
        code_dir, work_dir: the job's code, and where commands start.
        addresses: pod -> IP address.
        grace: seconds between SIGTERM and SIGKILL.
        labels, annotations: of the job, for variables that are fields of the pod.
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

    @property
    def rsh(self) -> Path:
        """The program that replaces ssh. Open MPI splits its path at spaces, so a directory without is preferred."""
        places = (self.directory, self.scratch)
        return next((place for place in places if not has_spaces(place)), self.directory) / "rsh"


@dataclass(frozen=True)
class PodSpec:
    """One local pod, ready to be started.

    Args:
        name: `<group>-<index>`.
        source: the source of the agent's own lines, as in LogLine.
        directory: its scratch directory.
        env, command: the agent's complete environment and command line.
        serves: whether the pod is ready only when its agent reports it.
    """

    name: str
    group: str
    index: int
    source: str
    address: str
    directory: Path
    env: Mapping[str, str]
    command: tuple[str, ...]
    config: Mapping[str, Any]
    serves: bool = False


def pod_name(group: str, index: int) -> str:
    """A local pod's name."""
    return f"{group}-{index}"


def pod_addresses(plan: LaunchPlan, free: list[str]) -> dict[str, str]:
    """Pod -> address; `free` has as many addresses as the plan has pods."""
    pods = [(group, pod_name(group.name, k)) for group in plan.groups for k in range(group.count)]
    return {
        pod: LAUNCHER_ADDRESS if group.name == LAUNCHER and group.in_world else address
        for (group, pod), address in zip(pods, free, strict=True)
    }


def plan_files(plan: LaunchPlan, site: Site, ports: Mapping[str, int]) -> dict[Path, str]:
    """The small files a plan needs: path -> content."""
    places = _Places(plan, site, ports, attempt=0, pod=0, group="")
    return {
        _file_path(site, file.name, file.key): "".join(resolve(line, places) + "\n" for line in file.lines)
        for file in plan.files
    }


def pod_specs(plan: LaunchPlan, host: Host, site: Site, ports: Mapping[str, int], attempt: int) -> list[PodSpec]:
    """Returns every pod of a plan, in the order of its groups, with the ports of this attempt.

    Raises BadInputError for a variable that is a field which no local pod has, or a text that no process can take.
    """
    return [
        _spec(plan, group, index, host, site, _Places(plan, site, ports, attempt, index, group.name))
        for group in plan.groups
        for index in range(group.count)
    ]


def _spec(plan: LaunchPlan, group: PodGroup, index: int, host: Host, site: Site, places: _Places) -> PodSpec:
    name = pod_name(group.name, index)
    directory = site.directory / "pods" / name
    address = site.addresses[name]
    own = _plan_env(group, places, host, site, name, address)
    env = {**host.environ, **own}
    for entry in local_entries(plan, group, index, host, address=address, rsh=site.rsh, scratch=site.scratch / name):
        if entry.name not in own and isinstance(entry.value, Text):
            env[entry.name] = resolve(entry.value, places)
    env |= {POD_MARK: str(directory), "STEPSET_LIFELINE": "1"}
    command = [expand(resolve(word, places), own) for word in (*group.command, *group.args)]
    if bad := [word for pair in (*env.items(), *enumerate(command)) for word in pair if "\0" in str(word)]:
        raise BadInputError(f"{group.name}: {str(bad[0])[:40]!r} holds a NUL character, which no process can be given")
    config = _config(plan, group, index, site, places, directory)
    return PodSpec(
        name=name,
        group=group.name,
        index=index,
        source=config["source"],
        address=address,
        directory=directory,
        env=env,
        command=(host.python, "-I", "-S", str(host.agent), "run", str(directory / "config.json"), "--", *command),
        config=config,
        serves=group.serves_ssh,
    )


def _plan_env(group: PodGroup, places: _Places, host: Host, site: Site, pod: str, address: str) -> dict[str, str]:
    """The plan's variables, each expanded with those before it, as the kubelet does."""
    env: dict[str, str] = {}
    for entry in group.env:
        value: Value | None = entry.value
        if isinstance(value, Text) and value.known_in_pod:
            value = entry.pod_value
        if isinstance(value, Text):
            env[entry.name] = expand(resolve(value, places), env)
        elif isinstance(value, SecretValue):
            env[entry.name] = host.secrets[value.secret, value.key]
        elif isinstance(value, FieldValue):
            env[entry.name] = _field(value.path, entry.name, site, pod, address, host.name)
    return env


def _config(
    plan: LaunchPlan, group: PodGroup, index: int, site: Site, places: _Places, directory: Path
) -> dict[str, Any]:
    """The agent's config, explained in docs/design/agent.md. Peers are IP addresses here: there is no name to await."""
    settings = group.agent
    sources = {NODE: f"node {index}", LAUNCHER: "launcher"}
    config: dict[str, Any] = {
        "version": 1,
        "group": group.name,
        "source": sources.get(group.name, pod_name(group.name, index)),
        "in_world": settings is not None,
        "dir": str(directory),
        "termination_log": str(directory / "termination-log"),
        "work_dir": str(site.work_dir),
        "grace": site.grace,
    }
    if group.serves_ssh:
        config["serve"] = str(site.scratch / site.addresses[pod_name(group.name, index)])
    if settings is None:
        return config
    if settings.world_size is not None:
        config["world_size"] = settings.world_size
    if settings.launcher_restarts:
        config["launcher_restarts"] = True
    if plan.ssh is not None:
        config["mpi"] = True
    if settings.wrap is not None:
        config["launcher"] = [resolve(word, places) for word in settings.wrap.launcher]
        config["program"] = [resolve(word, places) for word in settings.wrap.program]
        config["command_len"] = len(group.command)
    elif command_is_rank(plan, group):
        config["processes"] = settings.processes
    per_process = {
        e.name: resolve(e.value, places) for e in group.env if isinstance(e.value, Text) and e.value.known_in_pod
    }
    if per_process:
        config["process_env"] = per_process
        if "processes" not in config and plan.world.procs_per_node is not None:
            config["procs_per_node"] = plan.world.procs_per_node
    return config


@dataclass(frozen=True)
class _Places:
    """Resolves a plan's places for one local pod."""

    plan: LaunchPlan
    site: Site
    ports: Mapping[str, int]
    attempt: int
    pod: int
    group: str

    def __call__(self, part: Part) -> str:
        site = self.site
        match part:
            case PodHost(group, index):
                return site.addresses[pod_name(group, index)]
            case PortNumber(name):
                return str(self.ports[name])
            case CodePath(path):
                return str(site.code_dir / path)
            case MountedFile(name):
                return str(_file_path(site, name, next(f.key for f in self.plan.files if f.name == name)))
            case ResultFile():
                return str(site.directory / "pods" / pod_name(self.group, self.pod) / "result")
            case RunName():
                return site.run
            case NodeRank():
                return str(self.pod)
            case Attempt():
                return str(self.attempt)
            case str():
                return part
        return _PER_PROCESS[type(part)]


def _file_path(site: Site, name: str, key: str) -> Path:
    return site.directory / "files" / name / key


def _field(path: str, variable: str, site: Site, pod: str, address: str, machine: str) -> str:
    """A field of the pod (Kubernetes' downward API), as far as a process has one."""
    known = {
        "metadata.name": pod,
        "metadata.namespace": "default",
        "metadata.uid": f"{site.run}.{pod}",
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
        return (site.labels if match.group(1) == "labels" else site.annotations).get(match.group(2), "")
    raise BadInputError(
        f"env.{variable}: the field {path!r} is not known locally; known are {', '.join(known)},"
        " metadata.labels['NAME'] and metadata.annotations['NAME']"
    )
