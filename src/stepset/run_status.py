"""The state of a run for every interface: phases, one row per rank, progress, failure, result.

Plain data that can be stored as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from stepset.exit_code import ExitCode

LATEST = 2.0**35
"""Times must be below this limit, in seconds since the epoch (year 3058): Python cannot format years after 9999."""


class Phase(StrEnum):
    """The phase of a run's life cycle."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"

    @property
    def final(self) -> bool:
        """Whether the run is over."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST)


class FailureKind(StrEnum):
    """Why a run failed."""

    USER_ERROR = "UserError"
    OUT_OF_MEMORY = "OutOfMemory"
    IMAGE_PULL = "ImagePull"
    UNSCHEDULABLE = "Unschedulable"
    RENDEZVOUS = "Rendezvous"
    INFRASTRUCTURE = "Infrastructure"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    REJECTED = "Rejected"
    LOST = "Lost"
    CANCELLED = "Cancelled"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command line."""
        return _EXIT_CODES.get(self, ExitCode.INFRASTRUCTURE)


_EXIT_CODES = {
    FailureKind.USER_ERROR: ExitCode.TRAINING_FAILED,
    FailureKind.OUT_OF_MEMORY: ExitCode.TRAINING_FAILED,
    FailureKind.REJECTED: ExitCode.BAD_INPUT,
    FailureKind.DEADLINE_EXCEEDED: ExitCode.TIMED_OUT,
    FailureKind.CANCELLED: ExitCode.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank, or one pod without a rank (a launcher, a role).

    Args:
        source: the prefix of its log lines: `rank 3`, `node 0`, `launcher`, or a role's pod such as `prepare-0`.
        rank: its global rank; None for a pod without one.
        node: the machine, if known.
        state: Pending, Running, Succeeded, Failed, Stopped (by stepset, because another rank failed); for a local rank
            also Ended (its process no longer exists, and its end is not recorded yet) and Lost (its supervisor no
            longer exists).
        restarts: the number of its restarts.
        exit_code: None while it runs, and if a signal ended it.
        signal: the number of the signal that ended it.
        last_line: the last line it printed.
    """

    source: str
    rank: int | None
    pod: str
    node: str = ""
    state: str = "Pending"
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    last_line: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The training code's last report, on a `{"stepset": {...}}` line; `progress` is the completed fraction, 0 to 1."""

    step: int | None = None
    progress: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, and what failed first.

    Args:
        message: what happened, one sentence.
        advice: what to do, one sentence.
        rank, pod, node: the process that failed first, if known.
        exit_code, signal: how that process ended.
        error: the first real error that the process printed (exception line or launcher's report).
        tail: the last lines of the process.
        events: relevant cluster events.
        restarts: gang restarts before this failure.
        aftermath: the sources (as in RankStatus) of the processes that ended because of this failure.
    """

    kind: FailureKind
    message: str
    advice: str
    rank: int | None = None
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    tail: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    restarts: int = 0
    aftermath: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue of a run that waits for admission.

    Args:
        queue: the queue's name; in Kueue, that of the LocalQueue.
        reason: the controller's one-word reason; in Kueue, that of the Workload's condition QuotaReserved.
        message: the controller's message; empty if there is none yet.
        position: 1 is the first of the LocalQueue; None if unknown. Kueue reports it only through its visibility
            API, which needs a permission of its own.
    """

    queue: str
    reason: str = ""
    message: str = ""
    position: int | None = None

    @property
    def inadmissible(self) -> bool:
        """Whether the queue cannot admit the run, even with free capacity (kueue v0.16: WorkloadInadmissible)."""
        return self.reason == "Inadmissible"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment. Times are seconds since the epoch.

    Args:
        name: the run's name.
        job: the job's name.
        backend: local or kubernetes.
        phase: the phase of the run's life cycle.
        reason: why the run is not running: Queued, Unschedulable, PullingImage, Starting; NodeLost if a node was lost.
        attempt: gang restarts so far.
        world_size: planned ranks, if known.
        created: when the run was created.
        started: when the first pod of the world started; None before.
        finished: when the run ended; None before.
        ranks: a row for each rank, and for each pod without a rank.
        progress: the last report of the training code; None without one.
        result: the JSON value that rank 0 wrote to STEPSET_RESULT_FILE, once the run has succeeded; else None.
        failure: why the run failed; None unless it did.
        notes: facts about the run that a user may have to know.
        trouble: the problem that blocks the run, as the failure that it would cause; None once the run is over.
        waiting: the queue in which the run waits; None if it is not queued.
        expires: the time from which `stepset prune` deletes the run: its `ttl` after its end. None until the run is
            over, if it has no ttl, and if the cluster deletes it.
        program: what the run executes: the script, module or command of the job, with its arguments.
        labels: the job's labels.
        namespace: the namespace of a run on a cluster; empty for a local run.
    """

    name: str
    job: str
    backend: str
    phase: Phase = Phase.PENDING
    reason: str = ""
    attempt: int = 0
    world_size: int | None = None
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    ranks: tuple[RankStatus, ...] = ()
    progress: Progress | None = None
    result: Any = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    trouble: Failure | None = None
    waiting: Waiting | None = None
    expires: float | None = None
    program: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = ""

    def with_(self, **changes: Any) -> RunStatus:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns the status as plain data for JSON."""
        data = asdict(self)
        data["phase"] = self.phase.value
        for name, failure in (("failure", self.failure), ("trouble", self.trouble)):
            if failure:
                data[name]["kind"] = failure.kind.value
        return data

    @classmethod
    def from_dict(cls, data: object) -> RunStatus:
        """Reads the data of `to_dict`, also that of other versions, which may have fewer or more fields.

        Raises:
            ValueError: the data is not that of a status.
        """
        from msgspec import ValidationError, convert

        try:
            status = convert(data, cls)
        except (ValidationError, RecursionError) as error:
            raise ValueError(f"not the status of a run: {error}") from error
        times = (status.created, status.started, status.finished, status.expires)
        if not all(at is None or 0 <= at < LATEST for at in times):
            raise ValueError(f"not the status of a run: its times are not seconds since the epoch: {times}")
        return status

    def with_ttl(self, ttl: float | None) -> RunStatus:
        """Returns the status with `expires`: `ttl` seconds after the run's end; None without a ttl or an end."""
        over = self.phase.final and self.finished is not None and ttl is not None
        return replace(self, expires=self.finished + ttl if over else None)  # type: ignore[operator]  # checked above

    def expired(self, now: float) -> bool:
        """Whether the run's ttl is over; `now` is in seconds since the epoch."""
        return self.expires is not None and self.expires <= now

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command line once the run is over."""
        if self.phase is Phase.SUCCEEDED:
            return ExitCode.SUCCESS
        return self.failure.kind.exit_code if self.failure else ExitCode.INFRASTRUCTURE


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log: `source` is for example `rank 3` or `prepare-0`, `text` has no line end.

    Bytes that are not UTF-8 become U+FFFD. `aftermath` is whether a launcher, or a rank that was stopped, printed the
    line after the failure of another rank; the command line, Airflow and KFP omit such lines.
    """

    source: str
    text: str
    aftermath: bool = False
