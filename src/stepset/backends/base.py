"""The protocols of backends, run handles and listeners, and the arguments of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from stepset.defaults import STARTUP_TIMEOUT
from stepset.run_status import LogLine, RunStatus

if TYPE_CHECKING:  # reading a run's state should not import the job's model
    from stepset.backends.prune import PruneRule
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob
    from stepset.watch.lines import OpenLine


@dataclass(frozen=True)
class RunRequest:
    """One run of a job.

    Args:
        sources: the content of the job's script or code.
        name: the run's name; default: derived from the job's.
        attempt: the number of gang restarts before this run, if it continues an earlier run; default: 0.
        owner: a hash that identifies the caller; a caller that retries finds its run again by this hash. Default: none.
        owned_by: an ownerReference of the run's objects, which Kubernetes deletes with their owner; default: none.
        stdin: a descriptor whose content a local mpirun forwards to rank 0; default: ranks have no standard input.
    """

    job: TrainingJob
    sources: Sources
    name: str | None = None
    attempt: int = 0
    owner: str | None = None
    owned_by: Mapping[str, Any] | None = None
    stdin: int | None = None


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster, the namespace of the runs, and the time limits of a run's start.

    Args:
        kubeconfig: a file; default: the files of KUBECONFIG, else ~/.kube/config, else the pod's service account.
        context: a context of the kubeconfig; default: its current one.
        namespace: the namespace of the runs; default: the context's.
        target: the kind of workload: jobset, trainjob, statefulset, job or volcano; default: jobset for new runs, and
            every kind when runs are looked up.
        sources: the sources whose log lines are read, such as `rank 0`; default: all.
        admission_timeout: seconds a run may wait in a queue; default: no limit.
        startup_timeout: seconds from admission until all pods run, and again after each restart; None: no limit;
            default: 30 minutes.
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
    """The lines of a run's log to read.

    Args:
        sources: the sources of the lines, such as `rank 0`; None: all.
        since: the time of the first line, in seconds since the epoch; None: the run's first line.
        tail: how many of the existing lines to read, counted from the end of the log; None: all.
        previous: whether to read the lines of the attempt before the current one instead of all attempts.
        follow: whether to continue until the run is over.
    """

    sources: frozenset[str] | None = None
    since: float | None = None
    tail: int | None = None
    previous: bool = False
    follow: bool = False


TimedRow = tuple[float, bytes]
"""When a line was printed, in seconds since the epoch, and the line as `[source] text`."""


class RunListener(Protocol):
    """Receives the lines and states of a run, in the run's thread; its methods must not block for long."""

    def on_line(self, line: LogLine) -> None:
        """Receives each line that a rank printed, except progress lines."""

    def on_status(self, status: RunStatus) -> None:
        """Receives the state after each change of phase, ranks, progress, result or failure."""


@runtime_checkable
class OpenLineListener(RunListener, Protocol):
    """A listener that also receives the states of incomplete lines, such as progress bars."""

    def on_open_line(self, line: OpenLine) -> None:
        """Receives what an incomplete line currently shows, at most once a second for each source."""


class RunHandle(Protocol):
    """A run that was started by this process."""

    @property
    def name(self) -> str: ...

    def wait(self) -> RunStatus:
        """Blocks until the run is over; returns the final status."""

    def cancel(self) -> None:
        """Stops the run with its grace period; a second call kills it. Safe in any thread and in signal handlers."""


class Backend(Protocol):
    """Starts runs, and finds the runs of all processes by name.

    `name` is the name of a run, or of a job, whose newest run it selects. All methods with this parameter raise
    RunNotFoundError if no such run exists.
    """

    def start(self, request: RunRequest, listener: RunListener | None = None) -> RunHandle:
        """Starts a run and returns its handle.

        Raises BadInputError if the job cannot run as requested, and InfrastructureError for any other failure.
        """

    def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that continues when this process ends; raises as `start`."""

    def status(self, name: str) -> RunStatus: ...

    @property
    def place(self) -> str:
        """Where the runs are, for messages: a directory, or a namespace."""

    def list(self, *, all_namespaces: bool = False) -> list[RunStatus]:
        """Returns all runs, the newest first; changes nothing. On a cluster they are those of one namespace, or all."""

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the ended runs that a rule selects, and returns them, the newest first; `dry_run` only returns them.

        It deletes what stepset has created for the run, never a checkpoint_dir or other files of the training code.
        """

    def delete(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes ended runs as `prune` does, and returns them; a name is that of a run, never of a job.

        Raises RunNotFoundError for another name, and BadInputError for a run that is not over; nothing is deleted then.
        """

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """Yields the lines of `sources`, such as `rank 0` (None: all); `follow` continues until the run is over."""

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes the lines of `logs` as `[source] text`; does not change their bytes."""

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        """Yields the lines that a selection names, in blocks; empty blocks while the run prints nothing.

        Raises BadInputError if there is no previous attempt, or if the log has no times.
        """

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Blocks until the run is over, for at most `timeout` seconds; returns the current status."""

    def cancel(self, name: str) -> RunStatus:
        """Requests that the run stops, and returns at once; a second request kills the run."""
