"""The protocols of backends, run handles and listeners, their arguments, and functions for every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from stepset.defaults import STARTUP_TIMEOUT
from stepset.errors import RunNotFoundError
from stepset.run_filter import RunFilter
from stepset.run_status import LogLine, RunStatus

if TYPE_CHECKING:  # code that only reads the state of a run should not import the model of a job
    from stepset.backends.orphan_policy import OrphanStop
    from stepset.backends.prune import PruneRule
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob
    from stepset.watch.lines import OpenLine
    from stepset.watch.live_lines import LiveLine
    from stepset.watch.stacks.model import RunStacks


@dataclass(frozen=True)
class RunRequest:
    """The request to start one run of a job.

    Args:
        job: the job to run.
        sources: the content of the job's script or code.
        name: the name of the run. Default: a name that is derived from the name of the job.
        attempt: the number of restarts of the whole gang before this run, if the run continues an earlier run.
            Default: 0.
        continues: the name of the earlier local run that this run continues. Default: none.
        function_file: the path of the file that defines the job's Python function. A local run stores this path.
            Default: unknown.
        owner: a hash that identifies the caller. When a caller retries, it finds its run by this hash. Default: none.
        owned_by: an ownerReference of the run's Kubernetes objects. Kubernetes deletes the objects together with the
            owner. Default: none.
        stdin: a file descriptor. A local mpirun forwards the content of the file to rank 0. Default: the ranks have no
            standard input.
        notes: notes of the caller. The first status of the run already contains these notes. Default: none.
        orphan: how a run on a cluster is stopped after the owner of the run has ended and will not be retried. Default:
            the run continues.
        stopping: a function that returns whether to cancel the start of the run. A local run calls the function while
            it installs the requirements. If the function returns True, the run stops the installation and raises
            RunStoppedError. Default: the start is not cancelled.
        hide: a function that a local run calls with each value from a Secret, before the first rank starts. The caller
            can then mask the values in its log. Default: the values are not passed to the caller.
    """

    job: TrainingJob
    sources: Sources
    name: str | None = None
    attempt: int = 0
    continues: str = ""
    function_file: str = ""
    owner: str | None = None
    owned_by: Mapping[str, Any] | None = None
    stdin: int | None = None
    notes: tuple[str, ...] = ()
    orphan: OrphanStop | None = None
    stopping: Callable[[], bool] | None = None
    hide: Callable[[str], None] | None = None


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster, the namespace of the runs, and the time limits for the start of a run.

    Args:
        kubeconfig: the path of a kubeconfig file. Default: the files that KUBECONFIG lists. If KUBECONFIG is not set,
            the default is ~/.kube/config. If this file does not exist, the default is the pod's service account.
        context: the name of a context in the kubeconfig. Default: the current context.
        namespace: the namespace of the runs. Default: the namespace of the context.
        target: the kind of workload: jobset, trainjob, statefulset, job or volcano. Default: jobset for new runs, and
            all kinds for existing runs.
        sources: the sources whose log lines `run` reads, such as `rank 0`. Default: all sources.
        admission_timeout: the number of seconds for which a run may wait in a queue. Only `run` uses this limit.
            Default: no limit.
        startup_timeout: the number of seconds within which all pods of a run must be running. The timer starts when the
            run is admitted, and starts again at each restart. Only `run` uses this limit. None means no limit. Default:
            30 minutes.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    target: str | None = None
    sources: frozenset[str] | None = None
    admission_timeout: float | None = None
    startup_timeout: float | None = STARTUP_TIMEOUT


@dataclass(frozen=True)
class LogSelection:
    """Which lines of a run's log to read.

    Args:
        sources: the sources of the lines, such as `rank 0`. None selects all sources.
        since: the earliest time of a line, in seconds since the epoch. None selects lines of any time.
        tail: the number of existing lines to read, counted from the end of the log. None selects all lines.
        previous: whether to read only the lines of the attempt before the current attempt. False selects all attempts.
        follow: whether to read new lines until the run has finished.
    """

    sources: frozenset[str] | None = None
    since: float | None = None
    tail: int | None = None
    previous: bool = False
    follow: bool = False

    @property
    def without_times(self) -> bool:
        """Whether the lines can be selected without reading their times or counting the lines.

        Such a selection is faster.
        """
        return self.tail is None and self.since is None and not self.previous


TimedRow = tuple[float, bytes]
"""The time at which a line was printed, in seconds since the epoch, and the line in the form `[source] text`."""


class RunListener(Protocol):
    """Receives the lines and states of a run. The run's thread calls the methods, so they must not block for long.

    If a method of the listener of `stepset.run` raises an exception, the run continues, and the first exception is
    logged as a warning.
    """

    def on_line(self, line: LogLine) -> None:
        """Receives a line that a rank printed. Lines that report progress are omitted."""

    def on_status(self, status: RunStatus) -> None:
        """Receives the status each time the phase, a rank, the progress, the result or the failure changes.

        A local run passes its status again if no other change follows within a second after new progress.
        """


@runtime_checkable
class OpenLineListener(RunListener, Protocol):
    """A listener that also receives the states of incomplete lines, such as progress bars."""

    def on_open_line(self, line: OpenLine) -> None:
        """Receives the current text of an incomplete line. Called at most once a second for each source."""


def pass_line(listener: RunListener, line: LogLine | OpenLine) -> None:
    """Passes a line to a listener. Passes the state of an incomplete line only to an `OpenLineListener`."""
    if isinstance(line, LogLine):
        listener.on_line(line)
    elif isinstance(listener, OpenLineListener):
        listener.on_open_line(line)


class RunHandle(Protocol):
    """A run that this process started."""

    @property
    def name(self) -> str: ...

    def wait(self) -> RunStatus:
        """Blocks until the run has finished, and returns the final status."""

    def cancel(self, *, reason: str = "") -> None:
        """Stops the run with its grace period. A second call kills the run.

        Can be called in any thread and in signal handlers.

        Args:
            reason: why the run is stopped. A local run states the reason in a note, and in the message of its failure.
                After a reason without a full stop, the message also states how much time the ranks had to save.
        """


class Backend(Protocol):
    """Starts runs, and finds runs by name. The found runs may have been started by another process.

    The parameter `name` is the name of a run or of a job. For the name of a job, the newest run of the job is used. All
    methods with this parameter raise RunNotFoundError if the run does not exist.
    """

    def start(self, request: RunRequest, listener: RunListener | None = None) -> RunHandle:
        """Starts a run and returns its handle.

        Raises:
            BadInputError: the job cannot run as requested.
            InfrastructureError: any other failure.
        """

    def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that continues after this process exits. Raises the same errors as `start`."""

    def status(self, name: str) -> RunStatus: ...

    @property
    def place(self) -> str:
        """The directory or the namespace that contains the runs. This text is used in messages."""

    def list(self, *, all_namespaces: bool = False) -> list[RunStatus]:
        """Returns all runs, the newest first. Changes nothing.

        Args:
            all_namespaces: whether to return the runs of all namespaces of a cluster. Default: False, which returns
                the runs of one namespace.
        """

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the finished runs that a rule selects, and returns these runs, the newest first.

        Deletes only what stepset created for the run. A checkpoint_dir and other files that the training code wrote are
        kept. If `dry_run` is True, the method only returns the runs.
        """

    def delete(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes finished runs as `prune` does, and returns these runs. The names must be names of runs, not of jobs.

        Raises:
            RunNotFoundError: a name is not the name of a run. No run is deleted.
            BadInputError: a run has not finished. No run is deleted.
            InfrastructureError: the directory of a local run cannot be deleted. All other runs are deleted.
        """

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """Yields the log lines of a run.

        Args:
            follow: whether to yield new lines until the run has finished.
            sources: the sources whose lines are yielded, such as `rank 0`. None selects all sources.
        """

    def live_lines(self, name: str, sources: frozenset[str] | None) -> Iterator[Sequence[LiveLine]]:
        """Yields blocks until the run has finished.

        A block contains lines of `logs`, and states of incomplete lines.
        """

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes the lines of `logs` in the form `[source] text`. The bytes of the lines are not changed."""

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        """Yields blocks of the lines that a selection selects. While the run prints nothing, the blocks are empty.

        Raises:
            BadInputError: there is no previous attempt, or the log contains no times.
        """

    def missing_logs(self, name: str, sources: frozenset[str] | None) -> str:
        """Returns a sentence about those logs of a run that do not exist. Returns "" if all logs exist.

        The logs were deleted together with their pods, or the containers of failed pods have never started.

        Args:
            sources: the sources whose logs are checked, such as `rank 0`. None selects all sources.
        """

    def exec(self, name: str, source: str, command: Sequence[str]) -> int:
        """Runs a command for a running rank, and returns the exit code of the command.

        On a cluster, the command runs in the rank's container. For a local run, the command runs on this machine. The
        command uses the standard streams of this process. The command has the environment and the working directory of
        the rank.

        Args:
            source: the source of the rank's log lines, such as `rank 2`.

        Raises:
            BadInputError: the rank is not running.
            InfrastructureError: the account has no permission to start a command.
        """

    def stacks(self, name: str, sources: frozenset[str] | None = None) -> RunStacks:
        """Returns the stacks of the running ranks of a run. The ranks continue.

        On a cluster, the agent is started in the pods of the ranks. The pods are read at the same time.

        Args:
            sources: the sources of the ranks, such as `rank 2`. None selects all ranks.

        Raises:
            BadInputError: no selected rank is running.
            InfrastructureError: no stack can be read, for example because the account lacks a permission. If only some
                pods cannot be read, the result contains a line for each of these pods.
        """

    def wait(
        self, name: str, timeout: float | None = None, show: Callable[[RunStatus], None] | None = None
    ) -> RunStatus:
        """Waits until the run has finished, or until `timeout` seconds have passed. Returns the current status.

        Args:
            show: a function that receives the current status twice a second. The calling thread calls this function.
        """

    def cancel(self, name: str) -> RunStatus:
        """Asks the run to stop, and returns at once. A second call kills the run."""


def request_stop(backend: Backend, name: str, *, kill: bool = False) -> RunStatus:
    """Asks a run to stop. Returns at once, with the state of the run before this call.

    A run in the phase Lost is also asked to stop, because its ranks may still be running.

    Args:
        kill: whether to kill the ranks at once instead of giving them time to exit.
    """
    before = backend.cancel(name)
    if kill and not before.phase.final:
        backend.cancel(before.name)
    return before


def runs_of_job(backend: Backend, job: str) -> list[RunStatus]:
    """Returns the runs of a job, the newest first. Raises RunNotFoundError if the job has no runs."""
    runs = RunFilter(jobs=frozenset({job})).select(backend.list())
    if not runs:
        raise RunNotFoundError(f"{job}: there is no run of a job of this name in {backend.place}")
    return runs


def newest_run(backend: Backend, place: str = "") -> RunStatus:
    """Returns the newest of all runs. Raises RunNotFoundError if there is no run. The message starts with `place`."""
    runs = backend.list()
    if not runs:
        where = f"{place}: " if place else ""
        raise RunNotFoundError(f"{where}there is no run in {backend.place}; start one with stepset run")
    return max(runs, key=lambda run: run.created)
