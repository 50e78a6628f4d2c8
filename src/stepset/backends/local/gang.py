"""Runs one attempt of a run: starts the pods in order, reads their output, and stops all pods when one fails."""

from __future__ import annotations

import errno
import math
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.local.journal import Journal
from stepset.backends.local.layout import Assignment, PodSpec
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.pod import LocalPod
from stepset.backends.local.ports.guard import Guard
from stepset.backends.local.processes import oom_kills
from stepset.plan.model import LAUNCHER, PodGroup
from stepset.run_status import FailureKind
from stepset.spec.quantity import format_duration
from stepset.watch.agent_events import observation_of, read_events
from stepset.watch.deadline import exceeded_deadline
from stepset.watch.diagnose import Observation, may_be_aftermath
from stepset.watch.lines import Batch

TICK = 0.1
"""Cancellation requests and deadlines, which have no descriptor, are checked at intervals of this number of seconds."""
SETTLE = 1.0
"""The number of seconds to wait for the failure of a peer after a rank has lost the connection to this peer."""
REPORT = 2.0
"""The seconds in which a failed pod must report its failure and exit. The agent waits for this number of seconds."""
MOST_RANKS = 10_000
"""The maximum number of ranks of a run. Each rank adds a row to the state, so events of further ranks are ignored."""
MARGIN = 2.0
"""An agent that has not exited this number of seconds after the grace period is killed."""

_LIMITS = {
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.EAGAIN: "; raise the limit of processes (ulimit -u)",
}
"""The remedies for errors that mean that a limit of the system is reached, by the number of the error."""


def remedy_of(error: OSError) -> str:
    """Returns `; ` and the remedy for an error that a system limit has caused. Returns "" for other errors."""
    return _LIMITS.get(error.errno or 0, "")


@dataclass(frozen=True)
class GangEnd:
    """The result of an attempt."""

    succeeded: bool  # the result of the plan's success rule
    observations: tuple[Observation, ...]  # the failed pods and ranks
    node_lost: bool = False  # whether an elastic world lost a node; such a loss does not count as a restart


class Gang:
    """The pods of one attempt. The times of its attributes are those of the monotonic clock.

    Args:
        lifeline: the read end of a pipe that closes when this process exits. The agents stop when the pipe closes.
        guard: confines the pods' ports to this machine. None if the ports cannot be confined or are already confined.
        cancel_requests: a function that returns the reason of each request to stop the run. A reason may be "". If
            there are two or more requests, the pods are killed.
        run_started: the monotonic time at which the first attempt began. The deadline of the job covers all attempts.
    """

    def __init__(
        self,
        given: Assignment,
        specs: Sequence[PodSpec],
        journal: Journal,
        lifeline: int,
        guard: Guard | None,
        cancel_requests: Callable[[], Sequence[str]],
        run_started: float,
    ) -> None:
        self._plan, self._job, self._stdin = given.plan, given.request.job, given.request.stdin
        self._journal, self._lifeline, self._guard = journal, lifeline, guard
        self._grace = grace = given.layout.grace
        self._cancel_requests = cancel_requests
        self._deadline = math.inf if self._job.deadline is None else run_started + self._job.deadline
        self._pods = [LocalPod(spec) for spec in specs]
        self._started: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._observations: list[Observation] = []
        self._time_to_save = f"the ranks could use up to {grace:g} s to save."
        self._pending: dict[str, list[Observation]] = {}
        self._oom_kills = oom_kills()
        self._succeeded = False
        self._node_lost = False
        self._stop_at = math.inf  # when a gang with a failure is stopped
        self._stopped_at: float | None = None  # when the gang was stopped
        self._kill_at = math.inf
        self._stragglers_until: float | None = None
        self._level = 0

    def run(self) -> GangEnd:
        """Runs the pods until all have exited, and returns the result of the attempt."""
        try:
            self._start_groups()
            while any(pod.running for pod in self._pods):
                for key, _ in self._selector.select(self._timeout()):
                    self._serve(*key.data)
                self._check()
                self._journal.tick()
        finally:
            for pod in self._pods:
                if pod.running:  # only possible after an error in this class
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

    def _start(self, pod: LocalPod) -> bool:
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

    def _of(self, group: str) -> list[LocalPod]:
        return [pod for pod in self._pods if pod.spec.group == group]

    # --- reading

    def _serve(self, pod: LocalPod, what: Callable[[LocalPod], None]) -> None:
        if pod.running:  # the pod may have exited after `select` returned
            what(pod)

    def _read(self, pod: LocalPod) -> None:
        data = pod.read()
        if data:
            self._take(pod, pod.lines.feed(data))
        elif data is not None:
            self._selector.unregister(pod.output)
            self._reap(pod)

    def _reap(self, pod: LocalPod) -> None:
        if not pod.has_ended():
            return
        while data := pod.read():
            self._take(pod, pod.lines.feed(data))
        self._take(pod, pod.lines.finish())
        for fd in (pod.output, pod.end):
            with suppress(KeyError, ValueError):
                self._selector.unregister(fd)
        self._ended(pod)

    def _take(self, pod: LocalPod, batch: Batch) -> None:
        batch.events = list(read_events(batch.events, MOST_RANKS))
        self._journal.batch(pod.spec, batch, pod.stopped_at)
        for event in batch.events:
            if event["event"] == "ready":
                pod.ready = True
                self._start_groups()
            elif event["event"] in ("exited", "failed"):
                self._rank_ended(pod, event)

    def _rank_ended(self, pod: LocalPod, event: dict[str, Any]) -> None:
        """Handles an agent's report that a rank has exited or that the agent's pod has failed."""
        seen = self._observation(pod, event)
        if seen.succeeded:
            self._observations.append(seen)
            return
        if pod.spec.config.get("launcher_restarts") and not seen.stopped:
            if event["event"] == "failed":
                self._pending.setdefault(pod.spec.name, []).append(seen)
            return
        self._fail(seen)

    def _ended(self, pod: LocalPod) -> None:
        """Handles the termination of a pod's agent."""
        code = pod.exit_code
        assert code is not None
        spec = pod.spec
        self._journal.tracker.pod_ended(spec, code, pod.stopped_at)
        pending = self._pending.pop(spec.name, [])
        if code == 0 and pod.stopped_at is None:
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
            node=spec.node,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            tail=self._journal.tracker.tail(spec.source),
            stopped=pod.stopped_at is not None,
            out_of_memory=self._oom_killer_struck() if code == -signal.SIGKILL else None,
        )
        for event in read_events([{**failed, "event": "failed"}] if (failed := pod.verdict()) else [], MOST_RANKS):
            own = self._observation(pod, event)
        self._node_lost = self._node_lost or (bool(self._plan.world.elastic) and self._lost(pod))
        self._fail(own)

    def _observation(self, pod: LocalPod, event: dict[str, Any]) -> Observation:
        """Converts an agent's report of a failure or an exit to an observation."""
        spec = pod.spec
        rank = event.get("rank")
        source = spec.source if rank is None else f"rank {rank}"
        seen = observation_of(event, source, time.time(), rank=rank, pod=spec.name, node=spec.node)
        # The agent reports a time of the system's clock, which can be changed at any time.
        ended_at = time.monotonic() - (time.time() - seen.at)
        stopped = self._stopped_at is not None and ended_at >= self._stopped_at
        succeeded = event["event"] == "exited" and seen.exit_code == 0 and not stopped
        killed = seen.signal == signal.SIGKILL or seen.exit_code == 128 + signal.SIGKILL
        return replace(
            seen,
            tail=() if succeeded else self._journal.tracker.tail(source),
            stopped=stopped,
            succeeded=succeeded,
            out_of_memory=self._oom_killer_struck() if killed else None,
        )

    def _oom_killer_struck(self) -> bool | None:
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    # --- deciding

    def _pod_succeeded(self, pod: LocalPod) -> None:
        rule = self._plan.success
        if pod.spec.serves and not self._succeeded:
            self._verdict_on_the_run(FailureKind.INFRASTRUCTURE, f"{pod.spec.name} ended before the run was over.")
        elif pod.spec.group == rule.group and self._stopped_at is None:
            pods = self._of(rule.group)
            enough = pods[0].exit_code == 0 if rule.first else sum(p.exit_code == 0 for p in pods) >= rule.count
            if enough:
                # From now on, failures of other nodes are ignored, as with the successPolicy of a Job. Some nodes of
                # an elastic world may still be writing their last lines.
                self._stop_at = math.inf
                self._stragglers_until = self._stragglers_until or time.monotonic() + self._grace
        self._start_groups()

    def _stragglers_have_ended(self, now: float) -> bool:
        """Whether a successful run's remaining nodes have exited, or the grace period for these nodes has passed."""
        if self._stragglers_until is None:
            return False
        return now >= self._stragglers_until or not any(p.running for p in self._of(self._plan.success.group))

    def _lost(self, pod: LocalPod) -> bool:
        """Whether the node is lost, that is, whether a signal from outside this process terminated the pod."""
        code = pod.exit_code or 0
        return pod.stopped_at is None and (code < 0 or 128 < code < 128 + signal.NSIG)

    def _replaces(self, pod: LocalPod) -> bool:
        """Restarts a lost node and returns True, if the other nodes of the elastic world can continue.

        Node 0 is never restarted, because the rendezvous runs on node 0.
        """
        spec, elastic = pod.spec, self._plan.world.elastic
        if elastic is None or spec.group != self._plan.success.group or spec.index == 0 or self._stopped_at is not None:
            return False
        others = sum(p.running for p in self._of(spec.group) if p is not pod)
        if not self._lost(pod) or self._stop_at < math.inf or others < elastic[0]:
            return False
        pod.close()
        end_processes_of(spec.directory)
        again = LocalPod(spec)
        self._pods[self._pods.index(pod)] = again
        self._start(again)
        return True

    def _fail(self, seen: Observation) -> None:
        """Records a failure of a pod or a rank. Stops the gang unless the gang is already stopping."""
        if self._succeeded or self._stragglers_until is not None:
            return
        self._observations.append(seen)
        if seen.stopped or self._stopped_at is not None:
            return
        # If node 0 has just exited with code 0, the other nodes lose the store although the run has succeeded.
        lost_store = self._plan.success.first and seen.kind is FailureKind.RENDEZVOUS
        delay = SETTLE if lost_store or may_be_aftermath(seen) else 0.0
        self._stop_at = min(self._stop_at, time.monotonic() + delay)

    def _verdict_on_the_run(self, kind: FailureKind, text: str) -> None:
        self._end(Observation("", time.time(), error=text, kind=kind))

    def _end(self, seen: Observation) -> None:
        """Records a failure of the run as a whole, and stops the gang. Does nothing if the gang is already stopping."""
        if self._stopped_at is None:
            self._observations.append(seen)
            self._journal.stop()
            self._stop()

    def _check(self) -> None:
        """Handles cancellation requests, deadlines, errors of the log files, and pods without a pidfd."""
        now = time.monotonic()
        requests = self._cancel_requests() or self._journal.listener_requests
        if requests:
            why = next(filter(None, requests), "")
            if self._stopped_at is None:
                self._journal.cancelled(why)
            text = why if why.endswith(".") else f"{why}; {self._time_to_save}" if why else self._time_to_save
            self._verdict_on_the_run(FailureKind.CANCELLED, f"the run was cancelled: {text}")
        if len(requests) > max(self._level, 1) and self._stopped_at is not None:
            self._level = len(requests)
            self._stop(at_once=True)
            texts = self._time_to_save, "its ranks were killed."
            self._observations = [replace(seen, error=seen.error.replace(*texts)) for seen in self._observations]
        if now >= self._deadline and self._stopped_at is None:
            status, tail = self._journal.status(), self._journal.tracker.tail
            deadline, torch = format_duration(self._job.deadline or 0), self._job.framework.kind == "torch"
            self._end(exceeded_deadline(deadline, status, tail, time.time(), torch=torch))
        if broken := self._journal.broken:
            text = f"the logs of the run could not be written: {broken.strerror}."
            self._verdict_on_the_run(FailureKind.INFRASTRUCTURE, text)
        if now >= self._stop_at and self._stopped_at is None:
            self._stop()
        if self._stopped_at is None and self._stragglers_have_ended(now):
            self._succeeded = True
            self._stop()
        for pod in self._pods:
            if pod.running and now >= self._kill_at:
                pod.kill()
            if pod.running and pod.end < 0:
                self._reap(pod)

    def _stop(self, at_once: bool = False) -> None:
        """Asks all pods to stop, except failed pods. The agent of a failed pod stops without a request.

        The agent of a failed pod gives its launcher two seconds to report the failure, and then stops the other ranks.
        """
        failed = [o for o in self._observations if o.source and not o.stopped and not o.succeeded]
        failing = set() if at_once else {o.pod for o in failed}
        now = time.monotonic()
        self._stopped_at = self._stopped_at or now
        for pod in self._pods:
            if pod.running and (pod.spec.serves or pod.spec.name not in failing):
                pod.terminate()
        grace = 0.0 if at_once else self._grace + (REPORT if failing else 0.0)
        self._kill_at = now + grace + MARGIN

    def _timeout(self) -> float:
        next_at = self._stop_at if self._stopped_at is None else self._kill_at
        return min(TICK, max(0.0, next_at - time.monotonic()))
