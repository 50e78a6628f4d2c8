"""Updates the `RunStatus` of a run from the reports of its agents. Uses no I/O and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.hang import Hang
from stepset.plan.env import secret_variables
from stepset.plan.model import LAUNCHER, NODE, LaunchPlan
from stepset.plan.ranks import rank_ranges
from stepset.run_status import Failure, Phase, RankStatus, RunStatus
from stepset.watch.hangs.stalled import KnownHang
from stepset.watch.lines import Batch, without_rank_mark
from stepset.watch.present.sentences import restart_sentence
from stepset.watch.state.rank_states import FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED
from stepset.watch.state.reports import NO_OUTPUT, PodReport, RankReport, Reports
from stepset.watch.state.rules import Decision, ended
from stepset.watch.tracebacks import stuck_note, stuck_rank


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod of the current attempt. `stopped_at` is the time at which the supervisor asked the pod to stop."""

    spec: PodSpec
    started: bool = False
    exit_code: int | None = None  # -N if signal N has terminated the agent
    stopped_at: float | None = None


class Tracker:
    """The status of one run, from its first attempt to its verdict.

    Attributes:
        changed: whether the status has changed since the caller last set this attribute to False.
        has_secrets: whether the output of the ranks may contain values that must not be stored.
    """

    def __init__(self, plan: LaunchPlan, status: RunStatus) -> None:
        self._plan, self._ranges = plan, rank_ranges(plan)
        self.has_secrets = bool(secret_variables(plan))
        self._mpi = any(group.name == LAUNCHER for group in plan.groups)
        self._status = status
        self._pods: dict[str, _Pod] = {}
        self._restarts: dict[str, int] = {}  # source -> the number of its restarts before the current start of its pod
        self._ended = False  # whether the attempt has ended
        self._reports, self._known_hang = Reports(), KnownHang()
        self._printers: dict[str, PodReport] = {}  # source -> the report of the pod that has printed its last output
        self.changed = True

    def status(self, last_line: Callable[[str], tuple[str, float | None]]) -> RunStatus:
        """Returns the status. `last_line` returns the last line that a source printed, and the time of the line."""

        def shown(row: RankStatus) -> RankStatus:
            text, at = last_line(row.source)
            return replace(row, last_line=without_rank_mark(row.source, text), last_line_at=at)

        return self._with_rows(map(shown, self._rows()))

    def _with_rows(self, rows: Iterable[RankStatus]) -> RunStatus:
        status = self._status.with_(ranks=tuple(rows))
        return self._reports.with_hang_and_slow(status, {name: name for name in self._pods})

    def output(self, spec: PodSpec, batch: Batch, now: float, stopped_at: float | None = None) -> None:
        """Records the output of a pod. Times are in seconds since the epoch.

        Args:
            stopped_at: when the supervisor asked the pod to stop. None if the pod was not asked to stop.
        """
        reports = self._reports
        self._pods[spec.name] = replace(self._pods[spec.name], stopped_at=stopped_at)
        self.changed |= any(event["event"] in ("started", "exited") for event in batch.events)
        if reports.see(spec.name, batch):
            self._known_hang = self._known_hang.see(self._with_rows(self._rows()).hang, now)
            self.changed = True
        self._printers |= dict.fromkeys(batch.printed(), reports.of(spec.name))
        if batch.progress:
            self.set(progress=reports.progress, points=reports.points)
        self.note(*reports.notes_of(self._status.created))

    def tail(self, source: str) -> tuple[str, ...]:
        """Returns the last lines of a source. Secrets are redacted, and long lines are truncated."""
        return self._printers.get(source, NO_OUTPUT).tail(source)

    def last_line(self, source: str) -> tuple[str, float | None]:
        """Returns the last line of a source, and the time of its last output in seconds since the epoch.

        Progress reports and the states of incomplete lines are output, but not lines. The line is "" if there is no
        line. The time is None if there is no output.
        """
        report = self._printers.get(source, NO_OUTPUT)
        return report.last_line(source), report.printed_at.get(source)

    def known_hang(self, now: float, failure: Failure | None = None) -> Hang | None:
        """Returns the hang of the current attempt that was known until a moment ago.

        If there is a failure, this may be the hang that the agents have found before they stopped their ranks.
        """
        pods = {name: name for name in self._pods}
        return self._reports.stalled.before_stop(self._rows(), pods, failure) or self._known_hang.at(now)

    def set(self, **changes: Any) -> None:
        """Changes fields of the status."""
        self._status = self._status.with_(**changes)
        self.changed = True

    def begin(self, specs: Sequence[PodSpec], attempt: int) -> None:
        """Begins an attempt. All rows become Pending.

        Adds one to the number of restarts in each row whose rank or pod started in the previous attempt.
        """
        self._count_restarts(self._rows())
        self._pods, self._ended = {spec.name: _Pod(spec) for spec in specs}, False
        self._reports.clear()
        self._printers.clear()
        self._known_hang = KnownHang()
        self.set(attempt=attempt, hang=None)

    def pod_started(self, spec: PodSpec, now: float) -> None:
        """Records that a pod's agent runs.

        One group of pods decides whether the run succeeds. The run becomes Running when a pod of this group has
        started.
        """
        if self._pods[spec.name].started:  # the node was lost, and is started again
            self._count_restarts([row for row in self._rows() if row.pod == spec.name])
            self._reports.drop(spec.name)
        self._pods[spec.name], self.changed = _Pod(spec, started=True), True
        if spec.group == self._plan.success.group and self._status.phase is not Phase.RUNNING:
            self.set(phase=Phase.RUNNING, reason="", started=self._status.started or now)

    def _count_restarts(self, rows: Sequence[RankStatus]) -> None:
        """Records that the ranks and pods of these rows are started again, if they have started before."""
        self._restarts |= {row.source: row.restarts + (row.state != PENDING) for row in rows}

    def pod_ended(self, spec: PodSpec, exit_code: int, stopped_at: float | None) -> None:
        """Records that a pod's agent and all ranks of the pod have exited.

        If a signal terminated the agent, `exit_code` is the negative number of the signal.
        """
        pod = self._pods[spec.name]
        self._pods[spec.name], self.changed = replace(pod, exit_code=exit_code, stopped_at=stopped_at), True

    def note_stuck_rank(self, status: Callable[[], RunStatus], now: float) -> None:
        """In an MPI job, adds a note about a rank that has printed a traceback and has not exited.

        Python ranks of MPI jobs wait in MPI_Finalize for the other ranks before they exit.

        Args:
            status: a function that returns the current status.
            now: the current time, in seconds since the epoch.
        """
        if self._mpi and (stuck := stuck_rank(status(), self.tail, now)):
            self.note(stuck_note(stuck[0].source))

    def note(self, *notes: str) -> None:
        """Adds notes to the status."""
        if new := [note for note in notes if note not in self._status.notes]:
            self.set(notes=(*self._status.notes, *new))

    def end(self, decision: Decision, now: float) -> None:
        """Ends the attempt, and the run if the decision is final. From now on, `status` contains the final rows."""
        hang = self.known_hang(now, decision.failure) if decision.failure is not None else None
        reported = next(iter(self._reports.result(self._pods)), None)
        alone = self._reports.alone_note(self._pods, self._status.world_size)
        status = ended(self._status, decision, self._rows(), hang, reported, alone)
        self._status, self._ended, self.changed = status, True, True
        if not decision.phase.final and status.failure is not None:
            self.set(failure=None, hang=None)
            self.note(restart_sentence(status.attempt + 1, status.failure.message))

    def _rows(self) -> list[RankStatus]:
        """Returns one row for each rank, sorted by rank, and one row for each pod without ranks."""
        if self._ended:
            return list(self._status.ranks)
        pods, started = self._pods.values(), self._reports.placement(self._pods)
        planned = ((pod, self._ranges.get(pod.spec.group)) for pod in pods)
        places = {rank: pod for pod, held in planned if held is not None for rank in held.of(pod.spec.index)}
        places |= {rank: self._pods[name] for rank, name in started.items()}
        # If the number of ranks is unknown, the row of the pod represents the ranks until they start.
        known = {pod.spec.name for pod in places.values() if pod.spec.group == NODE}
        rows = [_rank_row(rank, places[rank], self._reports) for rank in sorted(places)]
        rows += [_own_row(pod) for pod in pods if pod.spec.name not in known]
        return [replace(row, restarts=row.restarts + self._restarts.get(row.source, 0)) for row in rows]


def _end_state(succeeded: bool, stopped: bool) -> str:
    if stopped:
        return STOPPED
    return SUCCEEDED if succeeded else FAILED


def _own_row(pod: _Pod) -> RankStatus:
    row, code = RankStatus(pod.spec.source, None, pod.spec.name, pod.spec.node), pod.exit_code
    if code is None:
        return replace(row, state=RUNNING if pod.started else PENDING)
    state = _end_state(code == 0, pod.stopped_at is not None)
    return replace(row, state=state, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)


def _rank_row(rank: int, pod: _Pod, reports: Reports) -> RankStatus:
    report = reports.of(pod.spec.name).ranks.get(rank, RankReport())
    row = RankStatus(f"rank {rank}", rank, pod.spec.name, pod.spec.node, restarts=max(0, report.starts - 1))
    if (end := report.ended) is not None:
        stopped = pod.stopped_at is not None and (end["at"] is None or end["at"] >= pod.stopped_at)
        state = _end_state(end["exit_code"] == 0, stopped)
        return replace(row, state=state, exit_code=end["exit_code"], signal=end["signal"])
    if pod.exit_code is not None:
        return replace(row, state=_end_state(pod.exit_code == 0, pod.stopped_at is not None))
    return replace(row, state=RUNNING if report.starts else PENDING)
