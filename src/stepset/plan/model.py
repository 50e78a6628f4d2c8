"""LaunchPlan: what every pod gets, and why. Made by a framework, carried out by a target or backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from stepset.plan.values import Text, Value
from stepset.spec.template import NODE as NODE  # pods of the world are called as their container is

if TYPE_CHECKING:  # pydantic is imported only where a job is read or rendered: it takes longer than `stepset list`
    from stepset.spec.resources import Resources

LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One variable and its provenance.

    Args:
        name: the variable.
        value: its value; a Text that is `known_in_pod` is set by the agent.
        rule: why it is there, in one phrase with its source.
        origin: who set it: `stepset`, `job` (the user's), or `local` (the local backend).
        replaced: what stepset would have set, where the job took the name knowingly.
        pod_value: for a value the agent sets, what the pod's manifest holds instead, if anything.
    """

    name: str
    value: Value
    rule: str
    origin: Literal["stepset", "job", "local"] = "stepset"
    replaced: Value | None = None
    pod_value: Value | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A small file that every pod of some groups finds at a fixed place.

    Args:
        name: how MountedFile refers to it.
        path: where it is in a pod on Kubernetes.
        lines: its lines, without line ends.
        groups: which pod groups get it.
    """

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
    """An ssh key pair of the run's own, mounted in these groups at `path`; the backend makes it.

    File modes follow Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go).
    """

    path: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankWrap:
    """How the agent puts itself around every rank that a launcher starts.

    It runs `launcher + [agent, "rank", ...] + program + args` instead of the group's command.

    Args:
        launcher: the launcher with its options, told not to put an interpreter before the program.
        program: what each rank runs.
    """

    launcher: tuple[Text, ...]
    program: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does around a group's command.

    Args:
        wait_for: groups whose pods' names must resolve before the command starts; of a group that is larger than
            `WAIT_FOR_ALL` only pod 0 is waited for, or the cost would grow with the square of the nodes.
        peer_timeout: seconds it waits.
        processes: how many copies of the command it starts itself, each with its per-process variables.
        wrap: how it reaches the ranks a launcher starts; None where it cannot.
        world_size: ranks there must be, checked in every rank the agent wraps; None where it may vary.
        launcher_restarts: the launcher restarts failed ranks by itself, so a failed rank is not yet a failure.
    """

    wait_for: tuple[str, ...]
    peer_timeout: int
    processes: int = 1
    wrap: RankWrap | None = None
    world_size: int | None = None
    launcher_restarts: bool = False


WAIT_FOR_ALL = 64


@dataclass(frozen=True, slots=True)
class StartAfter:
    """A group that must be there first."""

    group: str
    condition: Literal["Ready", "Complete"]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Identical pods.

    Args:
        name: the group's name; `node`, `launcher`, or a role's.
        count: how many pods.
        in_world: whether they belong to the training world.
        command: what runs; empty: what the image says.
        env: variables in order; stepset's first, so that the job's may use `$(NAME)` of them.
        ports: names of the plan's ports the pods listen on.
        serves_ssh: the pods run an ssh server until the launcher is done, instead of a command.
        start_after: groups that must be ready or complete before.
        agent: None where the command is left untouched.
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


@dataclass(frozen=True, slots=True)
class World:
    """The training world.

    Args:
        num_nodes: pods in it.
        procs_per_node: processes each pod runs; None where the launcher counts devices itself.
        elastic: (min, max) nodes where the size may change.
    """

    num_nodes: int
    procs_per_node: int | None
    elastic: tuple[int, int] | None = None

    @property
    def size(self) -> int | None:
        """Processes in it, where that is known beforehand."""
        return None if self.procs_per_node is None else self.num_nodes * self.procs_per_node


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """The run has succeeded when `count` pods of `group` have."""

    group: str
    count: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that will run, before it is known where.

    Args:
        name: the job's name.
        world: the training world.
        groups: pod groups in the order they start.
        ports: port name -> number on Kubernetes.
        files: small files the groups need.
        ssh: ssh keys, for launchers that start ranks over ssh.
        success: when the run has succeeded.
        notes: what a user should know although it is no error, one line each.
    """

    name: str
    world: World
    groups: tuple[PodGroup, ...]
    ports: dict[str, int]
    success: SuccessRule
    files: tuple[PlanFile, ...] = ()
    ssh: SshKeys | None = None
    notes: tuple[str, ...] = field(default=())

    def group(self, name: str) -> PodGroup:
        """The group of that name; KeyError if there is none."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)
