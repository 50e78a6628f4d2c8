"""One scenario played through one interface: the run, the gate in front of the server, the interface's output."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stepset.targets.rbac import Account, rbac
from tests.cluster.runs import ACCOUNT, Runs, runs_in
from tests.cluster.stage import Stage
from tests.cluster.testbed.handle import Cluster
from tests.contract import interfaces
from tests.contract.gates import Gate, Proxy
from tests.contract.interfaces import RunParameters, Triggerers
from tests.contract.outcome import View
from tests.contract.scenarios import Scenario
from tests.contract.steps import RECOVERY_TIME, STARTUP_TIME

_SHARED_STEPS = ("server stops", "server starts", "the namespace is filled")
"""The steps that one play of a group does for all."""
SHARED_STEP_TIME = 600.0
"""Seconds within which a shared step ends on a busy machine; 2,000 large pods take a minute on an idle one."""
INTERFACES = ("call", "cli", "kfp", "trigger")


@dataclass(frozen=True)
class Case:
    """A scenario and an interface."""

    scenario: Scenario
    interface: str

    @property
    def id(self) -> str:
        """The id of the pytest parameter."""
        return f"{self.scenario.name}-{self.interface}".replace(" ", "-").replace("'", "")


class Group:
    """Plays of one scenario that share some of its steps, such as an outage of the server, or a namespace.

    Args:
        size: the number of plays.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._barriers: dict[str, threading.Barrier] = {}
        self._lock = threading.Lock()
        self._shared = ExitStack()
        self._namespace = ""
        self._left = 0

    def once(self, name: str, act: Callable[[], None]) -> None:
        """Waits until all plays have reached this step; one of them then calls `act`."""
        with self._lock:
            barrier = self._barriers.setdefault(name, threading.Barrier(self._size, act))
        barrier.wait(STARTUP_TIME + RECOVERY_TIME + SHARED_STEP_TIME)

    @contextmanager
    def namespace(self, cluster: Cluster) -> Iterator[str]:
        """Provides a namespace that all plays share; it is deleted after the last of them."""
        with self._lock:
            if not self._namespace:
                self._namespace = self._shared.enter_context(cluster.namespace("contract"))
        try:
            yield self._namespace
        finally:
            with self._lock:
                self._left += 1
                last = self._left == self._size
            if last:
                self._shared.close()

    def enter(self, context: AbstractContextManager[None]) -> None:
        """Enters a context of the shared namespace, which ends with the last play."""
        self._shared.enter_context(context)

    def give_up(self) -> None:
        """Releases the other plays after one has failed."""
        with self._lock:
            for barrier in self._barriers.values():
                barrier.abort()
            self._barriers.update({name: _broken() for name in _SHARED_STEPS})

    def close(self) -> None:
        """Deletes the shared namespace if some plays have not been played."""
        self._shared.close()


def _broken() -> threading.Barrier:
    barrier = threading.Barrier(2)
    barrier.abort()
    return barrier


@dataclass
class Play:
    """The objects on which the steps of a scenario act.

    Args:
        cluster: the cluster.
        runs: the account.
        gate: the gate in front of the server.
        stage: the directory that the test and the ranks share.
        view: the output of the interface.
        ranks: the number of ranks.
        group: all plays of the scenario.

    Attributes:
        seen: the number of requests of each kind that the gate had received at the start of the last fault.
    """

    cluster: Cluster
    runs: Runs
    gate: Gate
    stage: Stage
    view: View
    ranks: int
    group: Group
    seen: dict[str, int] = field(default_factory=dict)

    def counted(self) -> int:
        """The number of lines shown of the rank with the fewest lines."""
        sources = [f"rank {rank}" for rank in range(self.ranks)]
        return min(len(self.view.lines.get(source, ())) for source in sources)

    def jobset(self) -> str:
        """The name of the run's workload."""
        kind = "statefulsets" if self.runs.target == "statefulset" else "jobsets"
        (workload,) = self.runs.get(kind)["items"]
        return str(workload["metadata"]["name"])


@dataclass(frozen=True)
class Player:
    """Plays scenarios; contains the resources that all plays share.

    Args:
        cluster: the cluster.
        proxy: the fault-injecting proxy.
        triggerers: starts triggerers.
        directory: the directory of the plays' files.
        heavy: a lock for plays with many pods, so that only one of them runs at a time.
    """

    cluster: Cluster
    proxy: Proxy
    triggerers: Triggerers
    directory: Path
    heavy: threading.Lock = field(default_factory=threading.Lock)

    def play(self, case: Case, group: Group) -> tuple[View, list[str]]:
        """Plays a scenario; returns the interface's output, and the callbacks that blocked its event loop.

        Raises:
            AssertionError: a step was not completed in time.
        """
        with ExitStack() as stack:
            if case.scenario.heavy:
                stack.enter_context(self.heavy)
            try:
                return self._play(case, group, stack)
            except BaseException:
                group.give_up()
                raise

    def _play(self, case: Case, group: Group, stack: ExitStack) -> tuple[View, list[str]]:
        scenario = case.scenario
        directory = self.directory / case.id
        files, stage = directory / "files", Stage(directory / "stage")
        files.mkdir(parents=True)
        stage.path.mkdir()
        shared = group.namespace(self.cluster) if scenario.shared else self.cluster.namespace("contract")
        namespace = stack.enter_context(shared)
        runs = stack.enter_context(runs_in(self.cluster, namespace, files, scenario.target))
        if case.interface == "kfp":
            for each in rbac("kfp", targets=[scenario.target], namespace=namespace, accounts=[Account(ACCOUNT)]):
                self.cluster.objects.create(each, namespace, exist_ok=True)
        gate = stack.enter_context(self.proxy.gate(runs.kubeconfig, files, namespace, scenario.user))
        for name, do, fields in scenario.initial_faults:
            gate.fault(name, do, **dict(fields))
        job = runs.job(**scenario.job(stage)).to_dict()
        kubeconfigs = gate.kubeconfig, runs.kubeconfig
        name = f"run-{case.interface}" if scenario.shared else "run"
        parameters = RunParameters(job, name, files, *kubeconfigs, namespace, scenario.target, scenario.pause)
        view = stack.enter_context(self._interface(case.interface)(parameters))
        play = Play(self.cluster, runs, gate, stage, view, scenario.ranks, group)
        for step in scenario.steps:
            step(play)
        view.wait(lambda: view.outcome is not None, "the end of the interface", scenario.timeout, to_end=True)
        for step in scenario.afterwards:
            step(play)
        return view, parameters.blocked()

    def _interface(self, name: str) -> Callable[[RunParameters], AbstractContextManager[View]]:
        if name == "trigger":
            return partial(interfaces.deferred_task, triggerers=self.triggerers)
        return {
            "call": interfaces.synchronous_call,
            "cli": interfaces.command_line,
            "kfp": interfaces.kfp_step,
        }[name]


@contextmanager
def player(cluster: Cluster, proxy: Proxy, directory: Path) -> Iterator[Player]:
    """Provides a player while the block runs."""
    triggerers = Triggerers(directory)
    try:
        yield Player(cluster, proxy, triggerers, directory)
    finally:
        triggerers.close()
