"""LaunchPlan: what every pod gets, and why. A framework creates it, a target or backend carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepset.plan.values import Text, Value
from stepset.spec.template import NODE as NODE  # the name of the world's pods and of their container

if TYPE_CHECKING:  # pydantic is imported only where a job is read or rendered: it takes longer than `stepset list`
    from stepset.spec.resources import Resources

LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One variable and its origin.

    Args:
        value: its value; the agent sets a Text that is `known_in_pod`.
        rule: its reason, in one phrase with its source.
        origin: who set it: `stepset`, `job` (the user's), or `local` (the local backend).
        replaced: stepset's value, if the job overrode it.
        pod_value: of a variable that the agent sets, the value in the pod's manifest, if any.
    """

    name: str
    value: Value
    rule: str
    origin: Literal["stepset", "job", "local"] = "stepset"
    replaced: Value | None = None
    pod_value: Value | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A small file that every pod of some groups has at `path` on Kubernetes; MountedFile refers to it by name."""

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

    An option of the launcher keeps it from putting an interpreter before the program.
    """

    launcher: tuple[Text, ...]
    program: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does around a group's command.

    Args:
        wait_for: groups whose pods' names must resolve before the command starts; of a group that is larger than
            `WAIT_FOR_ALL` only pod 0, because the cost grows with the square of the nodes.
        peer_timeout: seconds to wait for them.
        processes: copies of the command that the agent itself starts, each with its per-process variables.
        wrap: how it wraps the ranks that a launcher starts; None if it cannot.
        world_size: required number of ranks, checked in every wrapped rank; None if it may vary.
        launcher_restarts: whether the launcher restarts failed ranks, so that a failed rank is not yet a failure.
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
    """The run has succeeded when `count` pods of `group` have."""

    group: str
    count: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that will run, independent of where.

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

    def group(self, name: str) -> PodGroup:
        """Returns the group with this name; raises KeyError if there is none."""
        return {group.name: group for group in self.groups}[name]
