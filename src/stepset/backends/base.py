"""The protocols of backends, run handles and listeners; the CLI, `stepset.run` and the operators use only these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from stepset.watch.state import LogLine, RunStatus

if TYPE_CHECKING:  # reading a run's state should not import the job's model
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class RunRequest:
    """One run of a job.

    Args:
        sources: the content of the job's script or code.
        name: the run's name; default: derived from the job's.
        attempt: gang restarts before this run, when it continues an earlier one.
        owner: a hash that identifies the caller; a caller that retries finds its run again by this hash. Default: none.
        owned_by: an ownerReference of Kubernetes: the run's objects are deleted with that object; default: none.
    """

    job: TrainingJob
    sources: Sources
    name: str | None = None
    attempt: int = 0
    owner: str | None = None
    owned_by: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster, the namespace of the runs, and the time limits of a run's start.

    Args:
        kubeconfig: a file; default: the files of KUBECONFIG, else ~/.kube/config, else the pod's service account.
        context: a context of the kubeconfig; default: its current one.
        namespace: the namespace of the runs; default: the context's.
        target: the kind of a run's workload: jobset, trainjob, statefulset, job or volcano; default: new runs are
            JobSets, and runs of every kind are found.
        sources: the sources whose log lines are read, such as `rank 0`; default: all.
        admission_timeout: seconds a run may wait in a queue; default: no limit.
        startup_timeout: seconds from admission until all pods run, and again after each restart; None: no limit.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    target: str | None = None
    sources: frozenset[str] | None = None
    admission_timeout: float | None = None
    startup_timeout: float | None = 600.0


class RunListener(Protocol):
    """Receives the lines and states of a run, in the thread that runs it; its methods must not block for long."""

    def on_line(self, line: LogLine) -> None:
        """Receives each line that a rank printed, except progress lines."""

    def on_status(self, status: RunStatus) -> None:
        """Receives the state when the phase, the ranks, the progress, the result or the failure has changed."""


class RunHandle(Protocol):
    """A run that was started by this process."""

    @property
    def name(self) -> str: ...

    def wait(self) -> RunStatus:
        """Blocks until the run is over; returns the final status."""

    def cancel(self) -> None:
        """Stops the run with its grace period; a second call kills it. Safe in any thread and in signal handlers."""


class Backend(Protocol):
    """Starts runs, and finds by name runs that any process has started.

    `name` is a run's name, or a job's name for its newest run. All methods with this parameter raise RunNotFoundError
    if no such run exists.
    """

    def start(self, request: RunRequest, listener: RunListener | None = None) -> RunHandle:
        """Starts a run; BadInputError if the job cannot run as requested, InfrastructureError for any other failure."""

    def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that this process does not follow; BadInputError if the backend cannot."""

    def status(self, name: str) -> RunStatus: ...

    def list(self) -> list[RunStatus]: ...

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """Yields the lines of a run, all or those of some sources (`rank 0`); with `follow` until the run is over."""

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes what `logs` returns as `[source] text` lines, with the bytes unchanged."""

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Blocks until the run is over, or for `timeout` seconds; returns the status at that time."""

    def cancel(self, name: str) -> RunStatus:
        """Requests the run's end and returns at once; a second request kills it."""
