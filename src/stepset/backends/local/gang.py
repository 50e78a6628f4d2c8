"""One attempt of a run: starts the pods in order, reads their output, and stops them all when one fails."""

from __future__ import annotations

import errno
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.backends.local.journal import Journal
from stepset.backends.local.layout import PodSpec
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.pod import Pod
from stepset.backends.local.ports.guard import Guard
from stepset.plan.model import LAUNCHER, LaunchPlan, PodGroup
from stepset.run_status import FailureKind
from stepset.watch.agent_events import read_events
from stepset.watch.diagnose import Observation, may_be_aftermath
from stepset.watch.lines import Batch

TICK = 0.1
"""Seconds between two checks of conditions without a descriptor: cancellation, deadlines."""
SETTLE = 1.0
"""Seconds to wait, after a rank lost its peer, for the failure of the peer itself before the gang is stopped."""
REPORT = 2.0
"""Seconds in which a pod with a failure must report the failure and end; the agent waits for the same time."""
MOST_RANKS = 10_000
"""The maximum number of ranks of a run. Events of further ranks are ignored: each would add a row to the state."""
MARGIN = 2.0
"""Seconds after the grace period at which an agent that has not ended is killed."""

_LIMITS = {
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.EAGAIN: "; raise the limit of processes (ulimit -u)",
}
"""Error number -> the remedy for a limit of the system."""


def remedy_of(error: OSError) -> str:
    """Returns the remedy, after `; `, for an error that a system limit has caused; empty for other errors."""
    return _LIMITS.get(error.errno or 0, "")


@dataclass(frozen=True)
class GangEnd:
    """How an attempt ended: whether it `succeeded` by the plan's success rule, and which pods and ranks failed.

    `node_lost`: an elastic world lost a node, which does not count as a restart.
    """

    succeeded: bool
    observations: tuple[Observation, ...]
    node_lost: bool = False


class Gang:
    """The pods of one attempt.

    Args:
        lifeline: the read end of a pipe that closes when this process ends; the agents then stop.
        guard: confines the pods' ports to this machine; None if they cannot be confined or already are.
        grace: seconds between SIGTERM and SIGKILL.
        cancel_requests: returns the number of requests to cancel; two or more kill the pods at once.
        deadline: monotonic time at which the run must be over, or None.
        deadline_text: the deadline in the job's notation.
        stdin: the standard input of an MPI job's launcher; None: it has none.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        specs: Sequence[PodSpec],
        journal: Journal,
        *,
        lifeline: int,
        guard: Guard | None,
        grace: float,
        cancel_requests: Callable[[], int],
        deadline: float | None = None,
        deadline_text: str = "",
        stdin: int | None = None,
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._lifeline = lifeline
        self._guard = guard
        self._grace = grace
        self._cancel_requests = cancel_requests
        self._deadline = deadline
        self._deadline_text = deadline_text
        self._stdin = stdin
        self._pods = [Pod(spec) for spec in specs]
        self._started: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._observations: list[Observation] = []
        self._pending: dict[str, list[Observation]] = {}
        self._oom_kills = oom_kills()
        self._succeeded = False
        self._node_lost = False
        self._stop_at: float | None = None  # monotonic: when to stop a gang in which something failed
        self._stopped_at: float | None = None  # epoch: when the gang was stopped; ranks that end later were stopped
        self._kill_at: float | None = None
        self._stragglers_until: float | None = None
        self._level = 0

    def run(self) -> GangEnd:
        """Runs the pods until all have ended; returns how the attempt ended."""
        try:
            self._start_groups()
            while any(pod.running for pod in self._pods):
                for key, _ in self._selector.select(self._timeout()):
                    self._serve(*key.data)
                self._check()
                self._journal.tick()
        finally:
            for pod in self._pods:
                if pod.running:  # only after an error in this class
                    pod.kill()
                pod.close()
            self._selector.close()
        return GangEnd(self._succeeded, tuple(self._observations), self._node_lost)

    # --- starting

    def _start_groups(self) -> None:
        """Starts every group whose conditions are met."""
        for group in self._plan.groups:
            if group.name not in self._started and self._stopped_at is None and self._may_start(group):
                self._started.add(group.name)
                for pod in self._of(group.name):
                    if not self._start(pod):
                        return

    def _may_start(self, group: PodGroup) -> bool:
        return all(
            pod.ready if after.condition == "Ready" else pod.exit_code == 0
            for after in group.start_after
            for pod in self._of(after.group)
        )

    def _start(self, pod: Pod) -> bool:
        spec = pod.spec
        try:
            pod.start(self._lifeline, self._guard, self._stdin if spec.group == LAUNCHER else None)
        except OSError as error:
            text = f"{spec.name} could not be started: {error.strerror or error}"
            if error.errno == errno.E2BIG:
                text += "; its command or variables are too long: shorten them, or pass them in a file"
                self._verdict_on_the_run(FailureKind.REJECTED, text)
            else:
                self._verdict_on_the_run(FailureKind.INFRASTRUCTURE, text + remedy_of(error))
            return False
        self._selector.register(pod.output, selectors.EVENT_READ, (pod, self._read))
        if pod.end >= 0:
            self._selector.register(pod.end, selectors.EVENT_READ, (pod, self._reap))
        self._journal.pod_started(spec, pod.pid)
        return True

    def _of(self, group: str) -> list[Pod]:
        return [pod for pod in self._pods if pod.spec.group == group]

    # --- reading

    def _serve(self, pod: Pod, what: Callable[[Pod], None]) -> None:
        if pod.running:  # the pod may have ended after `select` returned
            what(pod)

    def _read(self, pod: Pod) -> None:
        data = pod.read()
        if data:
            self._take(pod, pod.lines.feed(data))
        elif data is not None:
            self._selector.unregister(pod.output)
            self._reap(pod)

    def _reap(self, pod: Pod) -> None:
        if not pod.has_ended():
            return
        while data := pod.read():
            self._take(pod, pod.lines.feed(data))
        self._take(pod, pod.lines.finish())
        for fd in (pod.output, pod.end):
            with suppress(KeyError, ValueError):
                self._selector.unregister(fd)
        self._ended(pod)

    def _take(self, pod: Pod, batch: Batch) -> None:
        batch.events = list(read_events(batch.events, MOST_RANKS))
        self._journal.batch(pod.spec, batch, pod.stopped)
        for event in batch.events:
            if event["event"] == "ready":
                pod.ready = True
                self._start_groups()
            elif event["event"] in ("exited", "failed"):
                self._rank_ended(pod, event)

    def _rank_ended(self, pod: Pod, event: dict[str, Any]) -> None:
        """Handles the agent's report of a rank's end or of its pod's failure."""
        seen = self._observation(pod, event)
        if event["event"] == "exited" and event.get("exit_code") == 0 and not seen.stopped:
            return
        if pod.spec.config.get("launcher_restarts") and not seen.stopped:
            if event["event"] == "failed":
                self._pending.setdefault(pod.spec.name, []).append(seen)
            return
        self._fail(seen)

    def _ended(self, pod: Pod) -> None:
        """Handles the end of a pod's agent."""
        code = pod.exit_code
        assert code is not None
        spec = pod.spec
        self._journal.pod_ended(spec, code, pod.stopped)
        pending = self._pending.pop(spec.name, [])
        if code == 0 and not pod.stopped:
            self._pod_succeeded(pod)
            return
        if self._replaces(pod):
            return
        for seen in pending:
            self._fail(seen)
        own = Observation(
            spec.source,
            time.time(),
            pod=spec.name,
            node=spec.address,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            tail=self._journal.tail(spec.source),
            stopped=pod.stopped,
            out_of_memory=self._oom_killer_struck() if code == -signal.SIGKILL else None,
        )
        verdict = pod.verdict()
        report = verdict.get("stepset") if isinstance(verdict, dict) else None
        failed = report.get("failed") if isinstance(report, dict) else None
        if isinstance(failed, dict):
            for event in read_events([{**failed, "event": "failed"}], MOST_RANKS):
                own = self._observation(pod, event)
        self._node_lost = self._node_lost or (bool(self._plan.world.elastic) and self._lost(pod))
        self._fail(own)

    def _observation(self, pod: Pod, event: dict[str, Any]) -> Observation:
        """Converts an agent's report of an end for the diagnosis."""
        spec = pod.spec
        rank = event.get("rank")
        source = spec.source if rank is None else f"rank {rank}"
        at = event.get("at", time.time())
        kind = event.get("kind")
        number = event.get("signal")
        exit_code = event.get("exit_code")
        killed = number == signal.SIGKILL or exit_code == 128 + signal.SIGKILL
        return Observation(
            source=source,
            at=at,
            rank=rank,
            pod=spec.name,
            node=spec.address,
            exit_code=exit_code,
            signal=number,
            error=event.get("error", ""),
            kind=FailureKind(kind) if kind in set(FailureKind) else None,
            tail=self._journal.tail(source),
            stopped=self._stopped_at is not None and at >= self._stopped_at,
            out_of_memory=self._oom_killer_struck() if killed else None,
        )

    def _oom_killer_struck(self) -> bool | None:
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    # --- deciding

    def _pod_succeeded(self, pod: Pod) -> None:
        rule = self._plan.success
        if pod.spec.serves and not self._succeeded:
            self._verdict_on_the_run(FailureKind.INFRASTRUCTURE, f"{pod.spec.name} ended before the run was over.")
        elif pod.spec.group == rule.group and self._stopped_at is None:
            pods = self._of(rule.group)
            enough = pods[0].exit_code == 0 if rule.first else sum(p.exit_code == 0 for p in pods) >= rule.count
            if enough:
                # As with the successPolicy of a Job, the failure of another node no longer matters. Some nodes of an
                # elastic world may still be writing their last lines.
                self._stop_at = None
                self._stragglers_until = self._stragglers_until or time.monotonic() + self._grace
        self._start_groups()

    def _stragglers_have_ended(self, now: float) -> bool:
        """Whether the run has succeeded and its nodes have ended, or have had the time for it."""
        if self._stragglers_until is None:
            return False
        return now >= self._stragglers_until or not any(p.running for p in self._of(self._plan.success.group))

    def _success(self) -> None:
        self._succeeded = True
        self._stop()

    def _lost(self, pod: Pod) -> bool:
        """Whether a signal that this process did not send ended the pod, as when a node is lost."""
        code = pod.exit_code or 0
        return not pod.stopped and (code < 0 or 128 < code < 128 + signal.NSIG)

    def _replaces(self, pod: Pod) -> bool:
        """Starts a lost node of an elastic world again if the other nodes can continue; returns whether it did.

        Node 0 is not replaced: the rendezvous runs there and is lost with the node.
        """
        spec, elastic = pod.spec, self._plan.world.elastic
        if elastic is None or spec.group != self._plan.success.group or spec.index == 0 or self._stopped_at is not None:
            return False
        others = sum(p.running for p in self._of(spec.group) if p is not pod)
        if not self._lost(pod) or self._stop_at is not None or others < elastic[0]:
            return False
        pod.close()
        end_processes_of(spec.directory)
        again = Pod(spec)
        self._pods[self._pods.index(pod)] = again
        self._start(again)
        return True

    def _fail(self, seen: Observation) -> None:
        """Records an end that is a failure, and stops the gang unless it is being stopped."""
        if self._succeeded or self._stragglers_until is not None:
            return
        self._observations.append(seen)
        if seen.stopped or self._stopped_at is not None:
            return
        # If node 0 has just ended with exit code 0, the other nodes lose the store although the run has succeeded.
        lost_store = self._plan.success.first and seen.kind is FailureKind.RENDEZVOUS
        delay = SETTLE if lost_store or may_be_aftermath(seen) else 0.0
        at = time.monotonic() + delay
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)

    def _verdict_on_the_run(self, kind: FailureKind, text: str) -> None:
        if self._stopped_at is None:
            self._observations.append(Observation("", time.time(), error=text, kind=kind))
            self._stop()

    def _check(self) -> None:
        """Handles requests to cancel, deadlines, errors of the log files, and pods without a pidfd."""
        now = time.monotonic()
        requests = self._cancel_requests() or (1 if self._journal.listener_error else 0)
        if requests:
            self._verdict_on_the_run(FailureKind.CANCELLED, "the run was cancelled.")
        if requests > max(self._level, 1) and self._stopped_at is not None:
            self._level = requests
            self._stop(at_once=True)
        if self._deadline is not None and now >= self._deadline:
            text = f"the run took longer than its deadline of {self._deadline_text}."
            self._verdict_on_the_run(FailureKind.DEADLINE_EXCEEDED, text)
        if broken := self._journal.broken:
            text = f"the logs of the run could not be written: {broken.strerror}."
            self._verdict_on_the_run(FailureKind.INFRASTRUCTURE, text)
        if self._stop_at is not None and now >= self._stop_at and self._stopped_at is None:
            self._stop()
        if self._stopped_at is None and self._stragglers_have_ended(now):
            self._success()
        for pod in self._pods:
            if pod.running and self._kill_at is not None and now >= self._kill_at:
                pod.kill()
        for pod in self._pods:
            if pod.running and pod.end < 0:
                self._reap(pod)

    def _stop(self, at_once: bool = False) -> None:
        """Requests the end of every pod, except pods with a failure, which end by themselves.

        The agent of such a pod gives its launcher two seconds to report the failure, and then stops the other ranks.
        """
        failing = set() if at_once else {o.pod for o in self._observations if o.source and not o.stopped}
        if self._stopped_at is None:
            self._stopped_at = time.time()
        for pod in self._pods:
            if pod.running and (pod.spec.serves or pod.spec.name not in failing):
                pod.terminate()
        grace = 0.0 if at_once else self._grace + (REPORT if failing else 0.0)
        self._kill_at = time.monotonic() + grace + MARGIN

    def _timeout(self) -> float:
        now = time.monotonic()
        next_at = self._stop_at if self._stopped_at is None else self._kill_at
        return TICK if next_at is None else min(TICK, max(0.0, next_at - now))


def oom_kills() -> int | None:
    """Returns how many processes the kernel's out-of-memory killer has killed on this machine; None if unknown."""
    try:
        words = Path("/proc/vmstat").read_text().split()
        return int(words[words.index("oom_kill") + 1])
    except (OSError, ValueError):
        return None
