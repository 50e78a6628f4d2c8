"""Determines the pods and the commands for `stepset stacks`. The command is the agent, in the mode `stacks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.pod_command import PodCommand
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.kubernetes.find import pods_with_logs
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.stack_reading import running_ranks
from stepset.run_status import RankStatus, RunStatus
from stepset.targets.names import AGENT_DIR, RUN_DIR


@dataclass(frozen=True)
class PodToRead:
    """A pod whose stacks are read.

    Args:
        rows: the ranks of the pod whose stacks are read.
        command: the command that reads the stacks. If it is None, the agent does not run in the pod.
    """

    pod: str
    rows: Sequence[RankStatus]
    command: PodCommand | None


@dataclass(frozen=True)
class PodsToRead:
    """The pods of a run whose stacks are read, and a line for each selected rank that is not running."""

    run: str
    pods: Sequence[PodToRead]
    problems: Sequence[str]


async def pods_of_run(runs: ClusterRuns, name: str, sources: frozenset[str] | None) -> PodsToRead:
    """Returns the pods of a run whose stacks are read. Raises the errors of `Backend.stacks`."""
    workload = await runs.find(name)
    namespaced = runs.namespaced.of_kind(resource_of(workload))
    pods = await pods_with_logs(runs.namespaced, workload, sources)
    return pods_to_read(namespaced, await runs.read(workload), pods, sources)


def pods_to_read(
    namespaced: NamespacedClient, status: RunStatus, pods: Sequence[LogPod], sources: frozenset[str] | None
) -> PodsToRead:
    """Returns the pods of the selected ranks, and a line for each selected rank that is not running.

    Args:
        pods: the pods of the run.
        sources: the selected ranks, such as `rank 2`. None selects all ranks.

    Raises:
        BadInputError: no selected rank is running, or a source is not a rank.
    """
    by_name = {pod.name: pod for pod in pods}
    rows_of, problems = running_ranks(status, sources)
    found = []
    for name, rows in rows_of.items():
        if (pod := by_name.get(name)) is None or not pod.alive:
            problems.append(f"pod {name}: is not running any more")
            continue
        found.append(PodToRead(name, rows, _command(namespaced, pod, rows) if pod.agent else None))
    return PodsToRead(status.name, found, problems)


def _command(namespaced: NamespacedClient, pod: LogPod, rows: Sequence[RankStatus]) -> PodCommand:
    words = ["python3", "-I", "-S", f"{AGENT_DIR}/agent.py", "stacks", "--dir", RUN_DIR]
    for row in rows:
        words += ["--rank", str(row.rank)]
    return PodCommand(namespaced.namespace, pod.name, pod.container, words, replace(namespaced.grant, exec=True))
