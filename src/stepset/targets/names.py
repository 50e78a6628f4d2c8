"""The names of a run's objects, and the resolvers, which return the strings that replace the placeholders of a plan.

Some placeholders have a different value in each pod. For such a placeholder, the resolvers return these strings:

- `PodNames` returns a description such as `<rank>`. `stepset explain` uses this resolver.
- `InManifest` returns a reference such as `$(NAME)`, which Kubernetes replaces in each pod.
- `InAgent` returns a reference such as `{rank}`, which the agent replaces in each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.plan.model import LaunchPlan, PlanFile
from stepset.plan.values import (
    Attempt,
    CodePath,
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
    Resolver,
    ResultFile,
    RunName,
)
from stepset.targets import workload_kinds

CONTAINER = "node"
"""The name of the container that runs the command. Kubeflow Trainer and Trainer's tools expect this name."""

CODE_DIR = "/stepset/code"
CODE_VOLUME = "stepset-code"
"""The name of the volume that is mounted at `CODE_DIR`."""
SOURCE_DIR = "/stepset/source"
AGENT_DIR = "/stepset/agent"
RUN_DIR = "/stepset/run"
SSH_DIR = "/stepset/ssh"
RESULT_FILE = f"{RUN_DIR}/result"
RENDEZVOUS_KEY = "rendezvous-id"
"""The key of the run's rendezvous ID in the ConfigMap of the agent."""
AGENT_KEY = "agent.py"
INSTALLER_KEY = "install.py"
SSH_PRIVATE_KEY = "ssh-privatekey"
SSH_PUBLIC_KEY = "ssh-publickey"
SSH_KNOWN_HOSTS = "ssh-known-hosts"

COMPLETION_INDEX = f"metadata.annotations['{workload_kinds.COMPLETION_INDEX}']"
RESTART_ATTEMPT = f"metadata.annotations['{workload_kinds.RESTART_ATTEMPT}']"

# The format strings of the host names of pods. Jobs and StatefulSets use the same format. Sources:
# - JobSet: kubernetes-sigs/jobset v0.12.0 pkg/controllers/jobset_controller.go
# - Job: kubernetes v1.36 pkg/controller/job
# - Volcano Job: volcano-sh/volcano pkg/controllers/job/helpers/helpers.go (PodNameFmt)
JOBSET_HOSTS = "{run}-{group}-0-{index}.{subdomain}"
SINGLE_GROUP_HOSTS = "{run}-{index}.{subdomain}"
VOLCANO_HOSTS = "{run}-{group}-{index}.{subdomain}"


def agent_config_map(run: str) -> str:
    """Returns the name of the ConfigMap that contains the agent, the agent's configuration and the rendezvous ID."""
    return f"{run}-agent"


def code_config_map(run: str) -> str:
    """Returns the name of the ConfigMap with the job's code."""
    return f"{run}-code"


def file_config_map(run: str, file: PlanFile) -> str:
    """Returns the name of the ConfigMap with one of the plan's files.

    Kubeflow Trainer uses the same name for the ConfigMap with the host file of an MPI job.
    """
    return f"{run}-{file.name}"


def ssh_config_map(run: str) -> str:
    """Returns the name of the ConfigMap with the configurations of the ssh servers and the ssh client."""
    return f"{run}-ssh-config"


def ssh_secret(run: str) -> str:
    """Returns the name of the Secret with the run's ssh keys. This is also the name that Kubeflow Trainer uses."""
    return f"{run}-mpi-ssh-auth"


def placeholder(key: str) -> str:
    """Returns a placeholder for a generated value in a Secret or ConfigMap.

    The backend replaces the placeholder when it submits the run.

    >>> placeholder("ssh-privatekey")
    '<ssh-privatekey: made when the run is submitted>'
    """
    return f"<{key}: made when the run is submitted>"


def has_placeholder(manifest: Mapping[str, Any]) -> bool:
    """Returns whether a rendered Secret or ConfigMap contains a placeholder of `placeholder`."""
    data = {**(manifest.get("data") or {}), **(manifest.get("stringData") or {})}
    return any(value == placeholder(key) for key, value in data.items())


# The strings that `PodNames` returns for placeholders that do not depend on the plan.
_FIXED: Mapping[type, str] = {
    ResultFile: RESULT_FILE,
    RendezvousId: "<random for each run>",
    NodeRank: "<pod index>",
    ProcessRank: "<rank>",
    LocalRank: "<local rank>",
    OwnDeviceFirst: "<devices, its own first>",
    FirstNode: "<1 in pod 0, else 0>",
    Attempt: "<attempt>",
}
_REFERENCES: Mapping[type, str] = {NodeRank: "$(STEPSET_NODE_RANK)", Attempt: "$(STEPSET_ATTEMPT)"}
_NOT_IN_MANIFESTS = frozenset({ProcessRank, LocalRank, OwnDeviceFirst, FirstNode, RendezvousId})


@dataclass(frozen=True)
class PodNames:
    """A resolver that returns host names, ports and paths. Values that differ between pods become `<...>`.

    Args:
        run: the name of the run.
        subdomain: the name of the headless Service.
        hosts: the format string of the host names of pods. The default is the format of a JobSet.
    """

    plan: LaunchPlan
    run: str
    subdomain: str
    hosts: str = JOBSET_HOSTS

    def host(self, group: str, index: int | str) -> str:
        """Returns the host name with which other pods connect to a pod."""
        return self.hosts.format(run=self.run, group=group, index=index, subdomain=self.subdomain)

    def __call__(self, part: Part) -> str:
        """Returns the string that replaces a placeholder.

        If the value of the placeholder differs between pods, the function returns a description such as `<rank>`.
        """
        if fixed := _FIXED.get(type(part)):
            return fixed
        match part:
            case RunName():
                return self.run
            case PodHost(group, index):
                return self.host(group, index)
            case PortNumber(name):
                return str(self.plan.ports[name])
            case CodePath(path):
                return f"{CODE_DIR}/{path}" if path else CODE_DIR
            case MountedFile(name):
                return next(f.path for f in self.plan.files if f.name == name)
            case str():
                return part
        raise AssertionError(f"unknown placeholder {part!r}")


@dataclass(frozen=True)
class InManifest:
    """A resolver for placeholders in the variables and the command of a manifest.

    All pods of a group have the same manifest. If a value differs between pods, the resolver returns a reference such
    as `$(STEPSET_NODE_RANK)`. Kubernetes replaces the reference in each pod, because the manifest defines
    STEPSET_NODE_RANK before all variables with such references.
    """

    names: PodNames

    def __call__(self, part: Part) -> str:
        """Returns the string that replaces a placeholder.

        Raises AssertionError if a manifest cannot contain the value of the placeholder.
        """
        kind = type(part)
        if kind in _NOT_IN_MANIFESTS:
            raise AssertionError(f"no text of a manifest can contain {part!r}")
        return _REFERENCES.get(kind) or self.names(part)


@dataclass(frozen=True)
class InAgent:
    """A resolver for placeholders in variables that the agent sets for each process.

    The agent replaces strings such as `{rank}` (docs/design/agent.md, process_env).
    """

    names: Resolver

    def __call__(self, part: Part) -> str:
        match part:
            case ProcessRank():
                return "{rank}"
            case LocalRank():
                return "{local_rank}"
            case OwnDeviceFirst(indexes):
                return "{devices}" + indexes
            case FirstNode():
                return "{first}"
            case NodeRank():
                return "{node_rank}"
        return self.names(part)
