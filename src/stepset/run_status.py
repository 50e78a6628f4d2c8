"""The classes for the state of a run: its phase, ranks, progress, failure and result.

All interfaces use these classes. The classes contain only plain data, which can be stored as JSON.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import singledispatch
from typing import Any, NamedTuple

from stepset.exit_code import ExitCode
from stepset.hang import Hang, SlowRanks
from stepset.printable import printable
from stepset.unstructured import LATEST


@singledispatch
def as_html(value: object, now: float) -> str:
    """Returns a value as HTML for notebooks.

    The function for `RunStatus` is registered by `stepset.html.status`, because this module cannot import the renderer.

    Args:
        now: the current time, in seconds since the epoch.

    Raises:
        NotImplementedError: no function is registered for the type. A notebook then shows the value as text.
    """
    raise NotImplementedError(f"no module that renders {type(value).__name__} was imported")


@singledispatch
def as_text(value: object, now: float) -> str:
    """Returns a value as plain text for Python users. `stepset.html.status` registers the function for `RunStatus`."""
    return repr(value)


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
        """Whether the run has finished."""
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
        """The exit code of the command line for this kind of failure."""
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
    """The state of one rank. A pod without ranks, such as a launcher or a role's pod, has a row of its own.

    Args:
        source: the source of the log lines, which is also their prefix. Examples are `rank 3`, `node 0`, `launcher`,
            and `prepare-0` for the pod of a role.
        rank: the global rank, or None for a pod without ranks.
        node: the name of the machine, if this name is known. In a local run, the name of a simulated node such as
            `node 1`.
        state: Pending, Running, Succeeded, Failed or Stopped. Stopped means that stepset stopped the rank because
            another rank had failed. A local rank can also be Ended or Lost. Ended means that the process no longer
            exists and its exit code is not recorded yet. Lost means that the supervisor process no longer exists.
        restarts: the number of restarts of the rank.
        exit_code: the exit code of the rank. None while the rank runs, or if a signal terminated the rank.
        signal: the number of the signal that terminated the process, or None.
        last_line: the last line that the rank printed. In a local run, this is what the rank's progress bar currently
            shows, if the bar is the last output and the job has no Secrets.
        last_line_at: the time of the last output, in seconds since the epoch. Progress reports and progress bars are
            output. The time is None if the rank has printed nothing. On a cluster, the time is also None if the status
            was read without following the run.
        pid: the PID of the rank's process. The PID is None in these cases: the rank does not run, the run is on a
            cluster, or the status was read outside the PID namespace of the run.
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
    last_line_at: float | None = field(default=None, compare=False)
    pid: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """The last progress report that the training code printed, as a line `{"stepset": {...}}`.

    Args:
        progress: the completed fraction of the training, from 0 to 1.
    """

    step: int | None = None
    progress: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """The progress of the training at one time. `at` is in seconds since the epoch."""

    at: float
    progress: Progress


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, and which process failed first.

    Args:
        message: one sentence that states what happened.
        advice: one sentence that states what the user can do.
        rank, pod, node: the rank, pod and node of the process that failed first, if they are known.
        exit_code, signal: the exit code of this process, or the signal that terminated it.
        error: the first error in the output of this process. Errors that are consequences of other errors are ignored.
            The value is the line of an exception, or the report of a launcher.
        frame: the innermost frame of the traceback of `error` that is not in a library, with its source line. Empty if
            there is no traceback, or if the last lines of the process that stepset has read do not contain the frame.
        tail: the last lines that the process printed.
        events: the events of the cluster that belong to the failure.
        restarts: the number of restarts of the whole gang before this failure.
        aftermath: the sources of the processes that terminated because of this failure.
        same_error: the sources of the other processes that failed with the same error.
        early_exit: the rank that had exited with code 0 before this process lost its peer, if there is one.
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
    same_error: tuple[str, ...] = ()
    frame: str = ""
    early_exit: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue of a run that waits for admission.

    Args:
        queue: the name of the queue. With Kueue, this is the name of the LocalQueue.
        reason: the controller's reason in one word. With Kueue, this is the reason of the condition QuotaReserved of
            the Workload.
        message: the controller's message. Empty if there is no message yet.
        position: the position in the LocalQueue. The first position is 1. None means that the position is unknown.
            Kueue reports the position only through its visibility API, which needs a separate permission.
        change: the change that is needed before the queue can admit the run. The controller's message determines this
            value. An empty string means that no change is needed.
        requests: the quantity of each resource that all pods of the run request together. The keys are the names of the
            resources. The mapping is empty if the quantities are unknown.
    """

    queue: str
    reason: str = ""
    message: str = ""
    position: int | None = None
    change: str = ""
    requests: dict[str, str] = field(default_factory=dict)

    @property
    def inadmissible(self) -> bool:
        """Whether the queue can admit the run only after a change. If True, waiting for other runs does not help."""
        return bool(self.change)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run at one time. All times are in seconds since the epoch.

    Args:
        name: the name of the run.
        job: the name of the job.
        backend: local or kubernetes.
        phase: the phase of the run's life cycle.
        reason: why the run is not running. The reason is Queued, Unschedulable, PullingImage, Starting or NodeLost. If
            the run finished without success, the reason is the kind of its failure.
        attempt: the number of restarts of the whole gang so far.
        first_attempt: the value of STEPSET_ATTEMPT at the first start of the run. The value is above 0 if the run
            continues an earlier run. On a cluster, the value is always 0.
        continues: the name of the earlier local run that this run continues, or an empty string.
        world_size: the planned number of ranks, or None if this number is unknown.
        created: the time at which the run was created.
        started: the time at which the first pod with ranks started. None until then.
        finished: the time at which the run finished. None until then.
        ranks: one row for each rank, and one row for each pod without ranks.
        progress: the last report of the training code, or None if there is no report.
        result: the JSON value that rank 0 wrote to STEPSET_RESULT_FILE. None until the run has succeeded.
        failure: why the run failed, or None if the run has not failed.
        notes: facts about the run for the user.
        trouble: the problem that currently blocks the run. The problem is a `Failure` object, because the run fails if
            the problem persists. None if there is no problem, and after the run has finished.
        waiting: the queue in which the run waits, or None if the run is not in a queue.
        hang: why no rank makes progress, or None. For a run that failed, the hang that was known before the failure.
        slow: the ranks that the other ranks regularly wait for. None if there are none, or if this is unknown.
        expires: the time at which the `ttl` of the run expires. From this time on, `stepset prune` deletes the run. The
            time is None until the run has finished, if the run has no ttl, and if the cluster itself deletes the run.
        program: what the run executes: the script, module, command or function of the job, with its arguments.
        labels: the labels of the job.
        namespace: the namespace of a run on a cluster. Empty for a local run.
        submitted_by: the account that submitted a run on a cluster. Empty if the account is unknown. The name is no
            proof, because any account that may write the workload can change the name.
        points: the progress reports of the training code, at most 160, evenly spaced over the run. Notebooks show the
            reports as curves. For a run on a cluster, only the process that follows the run has the points. Therefore
            the status that `run` returns has points, but the status that `submit`, `status` or `wait` reads has no
            points. A list of runs has no points.
        resumable: whether a new run can continue this run from its last checkpoint. True for a local run that has
            finished without success and whose `checkpoint_dir` contains a checkpoint. False in a list of runs.
        function: the name of the Python function that a resumable run called. Empty if `resumable` is False, and if the
            run called no function.
    """

    name: str
    job: str
    backend: str
    phase: Phase = Phase.PENDING
    reason: str = ""
    attempt: int = 0
    first_attempt: int = 0
    continues: str = ""
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
    hang: Hang | None = None
    slow: SlowRanks | None = None
    expires: float | None = None
    program: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = ""
    submitted_by: str = ""
    points: tuple[ProgressPoint, ...] = field(default=(), compare=False, repr=False)
    resumable: bool = field(default=False, compare=False, repr=False)
    function: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        """Sets `reason` to the kind of the failure if the run finished without success."""
        if self.phase.final and self.failure is not None:
            object.__setattr__(self, "reason", self.failure.kind.value)  # the class is frozen

    def with_(self, **changes: Any) -> RunStatus:
        same = all(getattr(self, name) is value for name, value in changes.items())
        return self if same else replace(self, **changes)  # copying is slow

    def to_dict(self) -> dict[str, Any]:
        """Returns the status as plain data for JSON. The data contains no `points`, `resumable` and `function`."""
        data = asdict(replace(self, points=()))
        del data["points"], data["resumable"], data["function"]
        data["phase"] = self.phase.value
        for name, value in (("failure", self.failure), ("trouble", self.trouble), ("hang", self.hang)):
            if value:
                data[name]["kind"] = value.kind.value
        return data

    @classmethod
    def from_dict(cls, data: object) -> RunStatus:
        """Returns the status that `to_dict` wrote.

        The data can come from another version of stepset. Therefore the data can have missing or additional fields.

        Raises:
            ValueError: the data is not a valid status.
        """
        from msgspec import ValidationError, convert

        try:
            status = convert(data, cls)
        except (ValidationError, RecursionError) as error:
            raise ValueError(f"not the status of a run: {error}") from error
        times = (status.created, status.started, status.finished, status.expires)
        if not all(at is None or 0 <= at < LATEST for at in times):
            raise ValueError(f"not the status of a run: its times are not seconds since the epoch: {times}")
        progress = status.progress or Progress()
        seconds = [*(status.hang.times if status.hang else ()), *(status.slow.times if status.slow else ())]
        if not all(map(math.isfinite, (progress.progress or 0.0, *progress.metrics.values(), *seconds))):
            raise ValueError("not the status of a run: its progress is not finite")
        return status

    def _repr_html_(self) -> str:
        """Returns the status as HTML for notebooks, with its state, ranks, curves and diagnosis."""
        return as_html(self, time.time())

    def __str__(self) -> str:
        """Returns the text that `stepset diagnose` prints: the final state and its cause, or the current state."""
        return as_text(self, time.time())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the status as text in IPython."""
        printer.text(str(self))

    def with_ttl(self, ttl: float | None) -> RunStatus:
        """Returns the status that expires `ttl` seconds after its end. Without a ttl or an end, `expires` is None."""
        over = self.phase.final and self.finished is not None and ttl is not None
        return self.with_(expires=self.finished + ttl if over else None)  # type: ignore[operator]  # checked above

    def expired(self, now: float) -> bool:
        """Returns whether the ttl of the run has expired at the time `now`, in seconds since the epoch."""
        return self.expires is not None and self.expires <= now

    @property
    def duration(self) -> float | None:
        """The number of seconds from the creation of the run to its end, or None if one of the times is unknown."""
        return None if self.finished is None or not self.created else self.finished - self.created

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that the command line uses for this run. The value is valid only if the run has finished."""
        if self.phase is Phase.SUCCEEDED:
            return ExitCode.SUCCESS
        return self.failure.kind.exit_code if self.failure else ExitCode.INFRASTRUCTURE


class LogLine(NamedTuple):
    """A line of a log.

    Args:
        source: the process that printed the line, for example `rank 3` or `prepare-0`.
        text: the line without its line break. Bytes that are not UTF-8 are replaced by U+FFFD.
        aftermath: whether the line is only a consequence of another rank's failure. Launchers and stopped ranks print
            such lines after the failure. Also True for a traceback that another failed rank has printed, and for lines
            that torchrun prints after the ranks of its pod have exited with 0. The interfaces omit these lines.
    """

    source: str
    text: str
    aftermath: bool = False

    @property
    def rank(self) -> int | None:
        """The number of the rank that printed the line, or None for other processes, such as a launcher."""
        kind, _, number = self.source.partition(" ")
        return int(number) if kind == "rank" else None

    def __str__(self) -> str:
        """Returns the line as `stepset logs` prints it.

        >>> print(LogLine("rank 3", "loss 0.31"))
        [rank 3] loss 0.31
        """
        return f"[{self.source}] {self.text}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the line as text in IPython. Control characters are escaped."""
        printer.text(printable(str(self)))
