"""The fields of a pod that a run's state depends on, parsed once per change.

They do not include the values of environment variables, so no secret can leak.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepset.plan.model import LAUNCHER, NODE
from stepset.targets.metadata import GROUP
from stepset.targets.names import AGENT_DIR, CONTAINER
from stepset.unstructured import (
    Fields,
    conditions,
    holds,
    number,
    one_line,
    part,
    rows,
    text,
    time_of,
    to_number,
)
from stepset.watch.cluster.message import NO_MESSAGE, TerminationMessage, read_termination_message
from stepset.watch.cluster.ownership import Owner, controller_of

_ATTEMPTS = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count")
_INDEXES = ("batch.kubernetes.io/job-completion-index", "volcano.sh/task-index", "apps.kubernetes.io/pod-index")
_GROUPS = (GROUP, "jobset.sigs.k8s.io/replicatedjob-name", "volcano.sh/task-spec")
_ORDINARY_WAITS = ("", "ContainerCreating", "PodInitializing")

Place = tuple[str, int]
"""A group of pods, and an index in it."""


@dataclass(frozen=True, slots=True)
class End:
    """How a container ended."""

    container: str
    exit_code: int  # 128 + n for a signal
    reason: str  # the kubelet's: Error, Completed, OOMKilled, StartError ...
    message: str  # the kubelet's, if the container never ran
    at: float | None  # whole seconds since the epoch, as Kubernetes reports it
    termination_message: TerminationMessage = NO_MESSAGE
    main: bool = True  # whether it is the container with the command


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a container does not run yet."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Disruption:
    """Why the cluster terminates a pod: the condition DisruptionTarget."""

    reason: str
    message: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. Times are seconds since the epoch."""

    uid: str
    name: str
    node: str
    owner: str  # uid of its controller
    job: str  # the name of its Job
    group: str
    index: int
    attempt: int  # gang restarts before it
    agent: bool  # whether the agent runs the command
    created: float
    phase: str  # Pending, Running, Succeeded, Failed, Unknown
    done: bool  # succeeded; the kubelet sets the phase only after its clean-up, one or two seconds later
    started: float | None  # the last start of its command
    running: bool  # whether its command runs
    restarts: int  # of its command, except the restart of a StatefulSet's pod after its final verdict
    end: End | None  # the final end; with several containers, that of the one that failed
    before: End | None  # the end before its command was restarted
    wait: Wait | None
    unschedulable: str  # the scheduler's message while no node has room for it
    gated: bool  # whether a scheduling gate holds it back
    scheduled: float | None  # when it was assigned to a node
    ready_to_start: float | None  # when its volumes and network were ready; images and containers come next
    deletion_requested: float | None  # when its deletion was requested
    due: float | None  # when the deletion should be complete
    deleted: bool  # whether it no longer exists
    disruption: Disruption | None
    reason: str  # the kubelet's reason (with `message`) if it terminated or rejected the pod
    message: str
    silent: bool  # whether its node has stopped reporting

    @property
    def place(self) -> Place:
        """Its group and its index in it."""
        return self.group, self.index

    @property
    def source(self) -> str:
        """The prefix of its own lines (docs/design/agent.md)."""
        if self.group == NODE:
            return f"node {self.index}"
        return LAUNCHER if self.group == LAUNCHER else f"{self.group}-{self.index}"

    @property
    def succeeded(self) -> bool:
        """Whether it ended successfully."""
        return self.end is not None and self.end.exit_code == 0 and self.phase != "Failed"

    @property
    def over(self) -> bool:
        """Whether its command has ended for good."""
        return self.end is not None or self.deleted or self.phase in ("Succeeded", "Failed")


def read_pod(data: Fields, deleted: bool, controller: Owner | None = None) -> Pod:
    """Reads a pod; `deleted`: the pod no longer exists, and `data` is its last known state.

    `controller` is the pod's controller, if the caller has read it.
    """
    meta, spec, status = part(data, "metadata"), part(data, "spec"), part(data, "status")
    labels, annotations = part(meta, "labels"), part(meta, "annotations")
    marks = {**annotations, **labels}
    controller = controller or controller_of(data)
    agent = _has_agent(spec)
    by_type = conditions(status)
    scheduled, ready = by_type.get("PodScheduled", {}), by_type.get("Ready")
    due = time_of(meta, "deletionTimestamp")
    # A pod that is being deleted is not restarted, regardless of its restartPolicy.
    policy = text(spec, "restartPolicy") if due is None and not deleted else "Never"
    states = _Containers(status, agent, policy, _sidecars(spec))
    return Pod(
        uid=text(meta, "uid"),
        name=text(meta, "name"),
        node=text(spec, "nodeName"),
        owner=controller.uid,
        job=controller.name if controller.kind == "Job" else "",
        group=next((text(marks, name) for name in _GROUPS if name in marks), NODE),
        index=_index(marks, text(meta, "name")),
        attempt=next((number(marks, name) for name in _ATTEMPTS if name in marks), 0),
        agent=agent,
        created=time_of(meta, "creationTimestamp") or 0.0,
        phase=text(status, "phase"),
        done=text(status, "phase") == "Succeeded" or (agent and policy != "Always" and _agent_succeeded(spec, status)),
        started=states.started,
        running=states.running and not deleted,
        restarts=states.restarts,
        end=states.end,
        before=states.before,
        wait=states.wait,
        unschedulable=_unschedulable(scheduled),
        gated=text(scheduled, "reason") == "SchedulingGated",
        scheduled=_since(scheduled),
        ready_to_start=_since(by_type.get("PodReadyToStartContainers")),
        deletion_requested=None if due is None else due - number(meta, "deletionGracePeriodSeconds"),
        due=due,
        deleted=deleted,
        disruption=_disruption(by_type.get("DisruptionTarget")),
        reason=text(status, "reason"),
        message=one_line(text(status, "message")),
        # For pods of a node that does not answer, the node controller changes only the condition Ready.
        silent=text(status, "phase") == "Running" and not holds(ready) and holds(by_type.get("ContainersReady")),
    )


class _Containers:
    """A pod's containers: the state of the command, and why it does not run yet.

    `sidecars` are the names of the containers that the kubelet restarts and stops by itself; they never fail a pod.
    """

    def __init__(self, status: Fields, agent: bool, policy: str, sidecars: frozenset[str]) -> None:
        self.restarts = 0
        self.running = False
        self.started: float | None = None
        self.end: End | None = None
        self.before: End | None = None
        own = list(rows(status, "containerStatuses"))
        every = [*rows(status, "initContainerStatuses"), *own]
        self.wait = next(iter(_waits(every)), None)
        main = next((row for row in own if text(row, "name") == CONTAINER), own[0] if own else None)
        if main is not None:
            self._read_main(main, agent, policy)
        if self.end is None or self.end.exit_code == 0:
            self._find_failed_container([row for row in every if text(row, "name") not in sidecars], main, status)

    def _read_main(self, main: Fields, agent: bool, policy: str) -> None:
        state, last = part(main, "state"), part(main, "lastState", "terminated")
        self.restarts = number(main, "restartCount")
        running, ended = part(state, "running"), part(state, "terminated")
        self.running = bool(running)
        self.started = time_of(running or ended or last, "startedAt")
        if policy != "Always":
            again = policy == "OnFailure" and number(ended, "exitCode") != 0
            self.end = _end(main, ended, agent) if ended and not again else None
            self.before = _end(main, last, agent) if last else None
            return
        # A StatefulSet's pod is always restarted. Its verdict is final once the pod is Ready or has succeeded; then the
        # pod only waits (docs/targets.md).
        verdict = ended or last
        if verdict and (number(verdict, "exitCode") == 0 or (running and main.get("ready") is True)):
            self.end = _end(main, verdict, agent)
            self.started = time_of(verdict, "startedAt")
            self.restarts = max(0, self.restarts - bool(running))
            self.running, self.wait = False, None
        elif verdict:
            self.before = _end(main, verdict, agent)

    def _find_failed_container(self, every: Iterable[Fields], main: Fields | None, status: Fields) -> None:
        """Sets `end` to the end of another container if that made the pod fail."""
        if text(status, "phase") != "Failed":
            return
        for row in every:
            ended = part(row, "state", "terminated")
            if row is not main and number(ended, "exitCode"):
                self.end = replace(_end(row, ended, agent=False), main=False)
                return


def _end(row: Fields, ended: Fields, agent: bool) -> End:
    code, reason = number(ended, "exitCode"), text(ended, "reason")
    ran = reason not in ("StartError", "ContainerCannotRun")
    message = text(ended, "message")
    return End(
        container=text(row, "name"),
        exit_code=code,
        reason=reason,
        # Each layer between kubelet and kernel prepends its own text.
        message="" if ran else one_line(message).rpartition("unable to start container process: ")[2],
        at=time_of(ended, "finishedAt"),
        termination_message=read_termination_message(message, code, agent) if ran else NO_MESSAGE,
    )


def _waits(every: Iterable[Fields]) -> list[Wait]:
    """Waiting containers: those with a problem first; among equals the training container first.

    If the training container itself has a problem, it does not wait for an init container: all have completed.
    """
    found = [
        Wait(text(row, "name"), text(why, "reason"), one_line(text(why, "message")))
        for row in every
        if (why := part(row, "state", "waiting"))
    ]
    return sorted(found, key=lambda wait: (wait.reason in _ORDINARY_WAITS, wait.container != CONTAINER))


def _sidecars(spec: Fields) -> frozenset[str]:
    """The names of a pod's native sidecars (targets/pods/sidecars.py)."""
    return frozenset(
        text(row, "name") for row in rows(spec, "initContainers") if text(row, "restartPolicy") == "Always"
    )


def _has_agent(spec: Fields) -> bool:
    command = next((row.get("command") for row in rows(spec, "containers") if text(row, "name") == CONTAINER), None)
    return isinstance(command, list) and any(isinstance(word, str) and f"{AGENT_DIR}/" in word for word in command)


def _agent_succeeded(spec: Fields, status: Fields) -> bool:
    """Whether the pod's only container runs stepset's agent and has ended with 0, so the phase will be `Succeeded`.

    False for a pod with native sidecars: the kubelet may take the whole grace period to stop them, and the pod may be
    evicted in that time.

    Without the agent the pod may still fail: the kubelet reports an eviction only when all containers have ended
    (kubernetes v1.36.3 pkg/kubelet/status/status_manager.go mergePodStatus), and a command that is stopped may end with
    0. The agent ends with 0 only if it was not stopped.
    """
    own = list(rows(spec, "containers"))
    # The container's own restartPolicy may restart it after exit code 0.
    if len(own) != 1 or "restartPolicy" in own[0] or _sidecars(spec):
        return False
    ends = [part(row, "state", "terminated") for row in rows(status, "containerStatuses")]
    return [number(end, "exitCode", -1) for end in ends] == [0] and text(status, "phase") != "Failed"


def _index(marks: Fields, name: str) -> int:
    mark = next((mark for mark in _INDEXES if mark in marks), None)
    return to_number(name.rpartition("-")[2]) if mark is None else number(marks, mark, -1)


def _unschedulable(scheduled: Fields) -> str:
    if not scheduled or holds(scheduled) or text(scheduled, "reason") == "SchedulingGated":
        return ""
    return one_line(text(scheduled, "message")) or text(scheduled, "reason")


def _since(condition: Fields | None) -> float | None:
    """When a condition became true; None if it is not."""
    return time_of(condition, "lastTransitionTime") if condition is not None and holds(condition) else None


def _disruption(condition: Fields | None) -> Disruption | None:
    if condition is None or not holds(condition):
        return None
    return Disruption(text(condition, "reason"), one_line(text(condition, "message")), _since(condition))
