"""The `LaunchPlan`, which describes the pods of a job.

A module of `stepset.frameworks` creates the plan. A target renders the plan as manifests, and a backend executes the
plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from stepset.plan.values import RENDEZVOUS_ID, Text, Value
from stepset.spec.template import NODE as NODE  # the name of the training pods and of their container

# Importing pydantic takes longer than `stepset list`. Therefore only code that reads or renders jobs imports pydantic.
if TYPE_CHECKING:
    from stepset.spec.parts import HangTimes, Role
    from stepset.spec.resources import Resources

LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One environment variable, its origin and the reason for it.

    Args:
        value: the value of the variable. If the value is a `Text` with `needs_agent`, the agent sets the variable.
        rule: the reason for the variable, as a phrase for `stepset explain`.
        origin: what sets the variable. `job` means the user's job, and `local` means the local backend.
        replaced: the value that stepset would have set, if the job overrides this value. Otherwise None.
        pod_value: the value in the pod's manifest, if the agent sets the variable. None if the manifest does not
            contain the variable.
        from_pod: whether the agent derives the value of each process from the pod's value. If True, the job may set the
            variable.
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
    """A small text file that the pods of some groups contain. A `MountedFile` refers to a `PlanFile` by its name.

    Args:
        path: the path of the file in the pods on Kubernetes.
        groups: the names of the pod groups whose pods contain the file.
    """

    name: str
    path: str
    lines: tuple[Text, ...]
    groups: tuple[str, ...]

    @property
    def key(self) -> str:
        """The file name, which is the last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class SshKeys:
    """The ssh key pair of a run. The backend creates the key pair.

    Kubeflow Trainer v2.3.0 uses the same file modes (pkg/runtime/framework/plugins/mpi/mpi.go).

    Args:
        path: the directory at which the keys are mounted.
        groups: the names of the pod groups whose pods mount the keys.
    """

    path: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankWrap:
    """How the agent wraps the ranks that a launcher starts.

    The agent runs the command `launcher + [agent, "rank", ...] + program + args`. The launcher then starts one agent
    process for each rank. Each of these processes starts the program.

    Args:
        launcher: the launcher and the launcher's options. The options include the option that stops the launcher from
            inserting a Python interpreter before the program.
        program: the program of a rank, without the job's `args`.
    """

    launcher: tuple[Text, ...]
    program: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does before, during and after a group's command.

    Args:
        wait_for: the names of pod groups. Before the agent starts the command, the agent waits until the host names of
            all pods of these groups resolve. If a group has more than `WAIT_FOR_ALL` pods, the agent waits only for
            pod 0 of the group.
        peer_timeout: the maximum time, in seconds, for which the agent waits for the host names.
        processes: the number of copies of the command that the agent starts. Each copy gets its own per-process
            variables.
        wrap: how the agent wraps the ranks that a launcher starts. None if the agent cannot wrap the ranks.
        world_size: the required number of ranks. Every wrapped rank checks the number. None if the number may vary.
        launcher_restarts: whether the launcher is the torchrun of an elastic world. torchrun then restarts failed
            ranks, and the pod continues. An exit code of 0 means success only if torchrun has passed its exit barrier.
        counts_ranks: whether the agent compares `world_size` with the ranks that the command itself starts.
        hang: the times after which the agent examines ranks that make no progress. If None, the agent does not look for
            such ranks.
    """

    wait_for: tuple[str, ...]
    peer_timeout: int
    processes: int = 1
    wrap: RankWrap | None = None
    world_size: int | None = None
    launcher_restarts: bool = False
    counts_ranks: bool = False
    hang: HangTimes | None = None


WAIT_FOR_ALL = 64

MAX_PROCESSES = 4096
"""The maximum number of processes per node.

No machine has so many CPUs. A larger number is a mistake in the job, such as an amount of memory given as CPUs.
"""


@dataclass(frozen=True, slots=True)
class StartAfter:
    """A pod group that must be ready or complete before another group starts."""

    group: str
    condition: Literal["Ready", "Complete"]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of identical pods.

    Args:
        name: the name of the group: `node`, `launcher` or the name of a role.
        count: the number of pods.
        in_world: whether the pods belong to the training world.
        command: the command of the pods. Empty if the pods run the command of the image.
        env: the variables in the order of the manifest. stepset's variables precede the job's variables. Therefore the
            job's variables can refer to stepset's variables with `$(NAME)`.
        ports: the names of the plan's ports on which the pods listen.
        serves_ssh: whether the pods run an ssh server instead of a command. The launcher starts the ranks over ssh.
        start_after: the groups that must be ready or complete before this group starts.
        agent: the settings of the agent. None if the command runs without the agent.
        role: the role of the job that the group belongs to. None for nodes and launchers.
        command_rule: the reason why stepset puts or does not put a launcher before the job's command. "" if the job has
            no command, or if no launcher starts the ranks of the framework.
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
    role: Role | None = None
    command_rule: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """The training world.

    Args:
        num_nodes: the number of pods in the world.
        procs_per_node: the number of processes in each pod. None if the launcher determines the number from the
            devices.
        elastic: the minimum and the maximum number of nodes. None if the size of the world is fixed.
    """

    num_nodes: int
    procs_per_node: int | None
    elastic: tuple[int, int] | None = None

    @property
    def size(self) -> int | None:
        """The number of processes in the world. None if the number is unknown before the pods start."""
        return None if self.procs_per_node is None else self.num_nodes * self.procs_per_node


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """The condition for the success of a run. A run has succeeded if `count` pods of `group` have succeeded.

    Args:
        first: whether the run has succeeded as soon as pod 0 has succeeded. True for an elastic world, because its
            number of pods may change. Pod 0 exits with 0 only after all other pods of the last rendezvous round have
            exited with 0 (docs/design/agent.md).
    """

    group: str
    count: int
    first: bool = False


@dataclass(frozen=True)
class LaunchPlan:
    """The description of all pods, ports and files of a job. The description does not depend on the backend.

    Args:
        groups: the pod groups, in the order in which they start.
        ports: a mapping from the names of the ports to their numbers on Kubernetes.
        files: the files that the pods contain.
        ssh: the ssh keys. None if no launcher starts ranks over ssh.
        notes: warnings for the user. Each warning is one line.
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
        """Whether a variable contains the random rendezvous ID of an elastic run."""
        return self.world.elastic is not None and any(
            entry.value == RENDEZVOUS_ID for group in self.groups for entry in group.env
        )

    def group(self, name: str) -> PodGroup:
        """Returns the group with this name. Raises KeyError if there is no such group."""
        return self._by_name[name]

    def has_group(self, name: str) -> bool:
        """Returns whether there is a group with this name."""
        return name in self._by_name

    @cached_property
    def _by_name(self) -> dict[str, PodGroup]:
        return {group.name: group for group in self.groups}
