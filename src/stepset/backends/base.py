"""What every backend can do. The CLI, `stepset.run` and the operators know only this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from stepset.watch.state import LogLine, RunStatus

if TYPE_CHECKING:  # asking for a run's state should not cost the job's model
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class RunRequest:
    """One run of a job.

    Args:
        job: what to run.
        sources: its script or code, read.
        name: the run's name; default: derived from the job's.
        attempt: gang restarts before this run, when it continues an earlier one.
        owner: a hash of who asks, by which the same asker finds its run again; default: nobody who asks twice.
        owned_by: an ownerReference of Kubernetes: the run's objects go when that object goes; default: none.
    """

    job: TrainingJob
    sources: Sources
    name: str | None = None
    attempt: int = 0
    owner: str | None = None
    owned_by: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster, where on it, and how long to be patient.

    Args:
        kubeconfig: a file; default: what KUBECONFIG names, else ~/.kube/config, else the pod's service account.
        context: of the kubeconfig; default: its current one.
        namespace: where runs are; default: the context's.
        target: what runs become: jobset, trainjob, statefulset, job or volcano; default: a JobSet, and runs of every
            kind are found.
        sources: whose lines are wanted, such as `rank 0`; default: everybody's.
        admission_timeout: seconds a run may wait in a queue; default: for ever.
        startup_timeout: seconds from there until all of it runs, and again after each restart; None: for ever.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    target: str | None = None
    sources: frozenset[str] | None = None
    admission_timeout: float | None = None
    startup_timeout: float | None = 600.0


class RunListener(Protocol):
    """Is told what happens in a run, from the thread that runs it; must not block for long."""

    def on_line(self, line: LogLine) -> None:
        """A line was printed; progress lines are left out."""

    def on_status(self, status: RunStatus) -> None:
        """Phase, ranks, progress, result or failure changed."""


class RunHandle(Protocol):
    """A run that was started by this process."""

    @property
    def name(self) -> str: ...

    def wait(self) -> RunStatus:
        """Blocks until the run is over; the final status."""

    def cancel(self) -> None:
        """Asks the run to stop, asked again to end at once; may be called from any thread or signal handler."""


class Backend(Protocol):
    """A place where runs live, found again by name from any process.

    Where a `name` is asked for, a run's name or a job's name will do; the latter means its newest run.
    All raise RunNotFoundError for a name nobody knows.
    """

    def start(self, request: RunRequest, listener: RunListener | None = None) -> RunHandle: ...

    def submit(self, request: RunRequest) -> RunStatus:
        """Makes a run that nobody here follows; BadInputError where runs end with whoever started them."""

    def status(self, name: str) -> RunStatus: ...

    def list(self) -> list[RunStatus]: ...

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]: ...

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes what `logs` gives as `[source] text` lines, bytes untouched."""

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Blocks until the run is over, or `timeout` seconds have passed: then the present status."""

    def cancel(self, name: str) -> RunStatus:
        """Asks the run to stop and comes back at once; asked again, it is killed."""
