"""LaunchPlan: the pods of a job. A framework creates the plan, a target or a backend executes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepset.plan.values import RENDEZVOUS_ID, Text, Value
from stepset.spec.template import NODE as NODE  # the name of the world's pods and of their container

if TYPE_CHECKING:  # only code that reads or renders jobs imports pydantic: the import takes longer than `stepset list`
    from stepset.spec.resources import Resources

LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One variable and its origin.

    Args:
        value: its value; if this is a Text with `needs_agent`, the agent sets the variable.
        rule: its reason, in one phrase with its source.
        origin: who set it: `stepset`, `job` (the user's), or `local` (the local backend).
        replaced: stepset's value, if the job overrode it.
        pod_value: for a variable that the agent sets, its value in the pod's manifest; None if it has none there.
        from_pod: whether the agent derives each process's value from the pod's value, which the job may therefore set.
    """

    name: str
    value: Value
    rule: str
    origin: Literal["stepset", "job", "local"] = "stepset"
    replaced: Value | None = None
    pod_value: Value | None = None
    from_pod: bool = False


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A small file at `path` in every pod of `groups` on Kubernetes; MountedFile refers to it by name."""

    name: str
    path: str
    lines: tuple[Text, ...]
    groups: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its file name."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class SshKeys:
    """An ssh key pair of the run, mounted in these groups at `path`; the backend creates it.

    File modes follow Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go).
    """

    path: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankWrap:
    """How the agent wraps every rank: it runs `launcher + [agent, "rank", ...] + program + args` as the command.

    `launcher` contains the option that stops the launcher from putting an interpreter before the program.
    """

    launcher: tuple[Text, ...]
    program: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does around a group's command.

    Args:
        wait_for: groups whose pods' names must resolve before the command starts; for a group that is larger than
            `WAIT_FOR_ALL`, only pod 0, because the cost grows with the square of the nodes.
        peer_timeout: seconds to wait for them.
        processes: copies of the command that the agent itself starts, each with its per-process variables.
        wrap: how the agent wraps the ranks that a launcher starts; None if it cannot wrap them.
        world_size: required number of ranks, checked in every wrapped rank; None if it may vary.
        launcher_restarts: whether the launcher is the torchrun of an elastic world. It restarts failed ranks, so that a
            failed rank does not fail the pod. A torchrun that exits with 0 has succeeded only if it has passed its exit
            barrier.
    """

    wait_for: tuple[str, ...]
    peer_timeout: int
    processes: int = 1
    wrap: RankWrap | None = None
    world_size: int | None = None
    launcher_restarts: bool = False


WAIT_FOR_ALL = 64

MAX_PROCESSES = 4096
"""Maximum processes per node, more than any machine has CPUs; a larger number is a mistake, such as bytes for CPUs."""


@dataclass(frozen=True, slots=True)
class StartAfter:
    """A group that must be ready or complete first."""

    group: str
    condition: Literal["Ready", "Complete"]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Identical pods.

    Args:
        name: `node`, `launcher`, or a role's name.
        in_world: whether they belong to the training world.
        command: empty for the image's own.
        command_rule: why stepset changes the job's command or keeps it; "" for groups other than an MPI launcher.
        env: variables in order; stepset's first, so that the job's may use `$(NAME)` of them.
        ports: names of the plan's ports on which the pods listen.
        serves_ssh: the pods run an ssh server until the launcher ends, instead of a command.
        agent: None if the command runs without the agent.
    """

    name: str
    count: int
    in_world: bool
    command: tuple[Text, ...]
    env: tuple[EnvEntry, ...]
    resources: Resources
    image: str | None = None
    args: tuple[Text, ...] = ()
    ports: tuple[str, ...] = ()
    serves_ssh: bool = False
    start_after: tuple[StartAfter, ...] = ()
    agent: AgentSettings | None = None
    command_rule: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """The training world.

    Args:
        num_nodes: pods in it.
        procs_per_node: processes of each pod; None if the launcher counts devices itself.
        elastic: (min, max) nodes if the size may change.
    """

    num_nodes: int
    procs_per_node: int | None
    elastic: tuple[int, int] | None = None

    @property
    def size(self) -> int | None:
        """Processes in it, if known beforehand."""
        return None if self.procs_per_node is None else self.num_nodes * self.procs_per_node


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """The run has succeeded when `count` pods of `group` have succeeded.

    Args:
        first: whether the run has succeeded as soon as pod 0 has succeeded. In an elastic world, whose size may change,
            that pod ends with 0 only after every pod of the last rendezvous round has ended with 0
            (docs/design/agent.md).
    """

    group: str
    count: int
    first: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that runs for a job, independent of the backend.

    Args:
        groups: pod groups in the order in which they start.
        ports: port name -> number on Kubernetes.
        ssh: ssh keys, for launchers that start ranks over ssh.
        notes: warnings for the user that are not errors, one line each.
    """

    name: str
    world: World
    groups: tuple[PodGroup, ...]
    ports: dict[str, int]
    success: SuccessRule
    files: tuple[PlanFile, ...] = ()
    ssh: SshKeys | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_rendezvous_id(self) -> bool:
        """Whether the value of any variable is the run's random rendezvous ID; only elastic worlds have one."""
        return self.world.elastic is not None and any(
            entry.value == RENDEZVOUS_ID for group in self.groups for entry in group.env
        )

    def group(self, name: str) -> PodGroup:
        """Returns the group with this name; raises KeyError if there is none."""
        return {group.name: group for group in self.groups}[name]
