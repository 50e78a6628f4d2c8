"""What every backend can do. The CLI, `stepset.run` and the operators know only this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

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
    """

    job: TrainingJob
    sources: Sources
    name: str | None = None
    attempt: int = 0


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
