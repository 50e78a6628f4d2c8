"""Resolvers, which return the text for the placeholders of a plan.

`stepset explain` uses `PodNames`. The targets use `InManifest` and `InAgent`, which fill in placeholders whose text
differs between pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.plan.model import LaunchPlan
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

CONTAINER = "node"
"""Name of the container with the command; Kubeflow Trainer and its tools expect this name."""

CODE_DIR = "/stepset/code"
SOURCE_DIR = "/stepset/source"
AGENT_DIR = "/stepset/agent"
RUN_DIR = "/stepset/run"
SSH_DIR = "/stepset/ssh"
RESULT_FILE = f"{RUN_DIR}/result"
RENDEZVOUS_KEY = "rendezvous-id"
"""The key of the run's rendezvous ID in the ConfigMap of the agent."""

COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
RESTART_ATTEMPT = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"

# kubernetes-sigs/jobset v0.12.0 pkg/controllers/jobset_controller.go; pods of a Job, k8s v1.36 pkg/controller/job;
# pods of a StatefulSet; volcano-sh/volcano pkg/controllers/job/helpers/helpers.go (PodNameFmt).
JOBSET_HOSTS = "{run}-{group}-0-{index}.{subdomain}"
SINGLE_GROUP_HOSTS = "{run}-{index}.{subdomain}"
VOLCANO_HOSTS = "{run}-{group}-{index}.{subdomain}"


def agent_config_map(run: str) -> str:
    """Returns the name of the ConfigMap with the agent, its configurations and the rendezvous ID."""
    return f"{run}-agent"


# The text of placeholders that do not depend on the plan: see `PodNames`, and `InManifest`.
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
    """The text for a plan's placeholders, as far as it is the same in all pods of a group.

    `subdomain` is the headless Service's name; `hosts` is the format string of pod host names; default: a JobSet's.
    """

    plan: LaunchPlan
    run: str
    subdomain: str
    hosts: str = JOBSET_HOSTS

    def host(self, group: str, index: int | str) -> str:
        """The name by which other pods find pod `index` of `group`."""
        return self.hosts.format(run=self.run, group=group, index=index, subdomain=self.subdomain)

    def __call__(self, part: Part) -> str:
        """Returns the text for one placeholder; `<...>` for ranks and others that differ between pods."""
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
    """The text for placeholders in the variables and the command of a manifest, which all pods of a group share.

    For a value that differs between pods, the text is a reference such as `$(STEPSET_NODE_RANK)`. Kubernetes replaces
    it in each pod, because the plan has that variable before the variables that refer to it.
    """

    names: PodNames

    def __call__(self, part: Part) -> str:
        """Returns the text for one placeholder; raises AssertionError for one that a manifest cannot contain."""
        kind = type(part)
        if kind in _NOT_IN_MANIFESTS:
            raise AssertionError(f"no text of a manifest can contain {part!r}")
        return _REFERENCES.get(kind) or self.names(part)


@dataclass(frozen=True)
class InAgent:
    """The text for placeholders of variables that the agent sets per process (docs/design/agent.md, process_env)."""

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
