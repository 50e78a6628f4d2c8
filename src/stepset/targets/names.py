"""The text of a plan's places in pods, and where a plan is shown without a cluster.

`stepset explain` uses `PodNames`; the targets use `InManifest` and `InAgent`, which differ in the places that differ
between pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepset.plan.model import LaunchPlan
from stepset.plan.values import (
    Attempt,
    CodePath,
    FirstNode,
    LocalRank,
    MountedFile,
    NodeRank,
    Part,
    PodHost,
    PortNumber,
    ProcessRank,
    Resolver,
    ResultFile,
    RunName,
)

CONTAINER = "node"
"""The container with the command in every pod: Kubeflow Trainer and its tooling expect this name."""

CODE_DIR = "/stepset/code"
SOURCE_DIR = "/stepset/source"
AGENT_DIR = "/stepset/agent"
RUN_DIR = "/stepset/run"
SSH_DIR = "/stepset/ssh"
RESULT_FILE = f"{RUN_DIR}/result"

COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
RESTART_ATTEMPT = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"

# kubernetes-sigs/jobset v0.12.0 pkg/controllers/jobset_controller.go; pods of a Job, k8s v1.36 pkg/controller/job;
# pods of a StatefulSet; volcano-sh/volcano pkg/controllers/job/helpers/helpers.go (PodNameFmt).
JOBSET_HOSTS = "{run}-{group}-0-{index}.{subdomain}"
SINGLE_GROUP_HOSTS = "{run}-{index}.{subdomain}"
VOLCANO_HOSTS = "{run}-{group}-{index}.{subdomain}"


@dataclass(frozen=True)
class PodNames:
    """The text of a plan's places in pods.

    `subdomain` is the headless Service's name; `hosts` the name of pod `index` of `group`, by default as in a JobSet.
    """

    plan: LaunchPlan
    run: str
    subdomain: str
    hosts: str = JOBSET_HOSTS

    def host(self, group: str, index: int | str) -> str:
        """The name by which other pods find pod `index` of `group`."""
        return self.hosts.format(run=self.run, group=group, index=index, subdomain=self.subdomain)

    def __call__(self, part: Part) -> str:
        """The text of one place; ranks and the like as `<...>`, because they differ between pods."""
        match part:
            case PodHost(group, index):
                return self.host(group, index)
            case PortNumber(name):
                return str(self.plan.ports[name])
            case CodePath(path):
                return f"{CODE_DIR}/{path}" if path else CODE_DIR
            case MountedFile(name):
                return next(f.path for f in self.plan.files if f.name == name)
            case ResultFile():
                return RESULT_FILE
            case RunName():
                return self.run
            case NodeRank():
                return "<pod index>"
            case ProcessRank():
                return "<rank>"
            case LocalRank():
                return "<local rank>"
            case FirstNode():
                return "<1 in pod 0, else 0>"
            case Attempt():
                return "<attempt>"
            case str():
                return part
        raise AssertionError(f"no such place: {part!r}")


@dataclass(frozen=True)
class InManifest:
    """The text of places in a pod's variables and command, which all pods of a group share.

    What differs between pods is a reference that Kubernetes expands in each of them, to one of the plan's first
    variables.
    """

    names: PodNames

    def __call__(self, part: Part) -> str:
        """Returns the text of one place; raises AssertionError for a place that only the agent can resolve."""
        match part:
            case NodeRank():
                return "$(STEPSET_NODE_RANK)"
            case Attempt():
                return "$(STEPSET_ATTEMPT)"
            case ProcessRank() | LocalRank() | FirstNode():
                raise AssertionError(f"only the agent can resolve {part!r}")
        return self.names(part)


@dataclass(frozen=True)
class InAgent:
    """The text of places in variables that the agent sets for each process (docs/design/agent.md, process_env)."""

    names: Resolver

    def __call__(self, part: Part) -> str:
        match part:
            case ProcessRank():
                return "{rank}"
            case LocalRank():
                return "{local_rank}"
            case FirstNode():
                return "{first}"
            case NodeRank():
                return "{node_rank}"
        return self.names(part)
