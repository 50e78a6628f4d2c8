"""Reads the fields of a pod that a run's state depends on. Each pod is parsed once per change.

The fields do not include the values of environment variables. Therefore no secret can leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, structs

from stepset.plan.model import LAUNCHER, NODE
from stepset.targets.metadata import GROUP
from stepset.targets.names import AGENT_DIR, CONTAINER
from stepset.targets.workload_kinds import WORKLOAD_KINDS
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
from stepset.watch.cluster.ownership import Owner, controller_of
from stepset.watch.state.termination_message import NO_MESSAGE, TerminationMessage, read_termination_message

_MARKS = [kind.marks for kind in WORKLOAD_KINDS.values()]
_INDEXES, _GROUPS, _ATTEMPTS = (tuple(dict.fromkeys(filter(None, marks))) for marks in zip(*_MARKS, strict=True))
_ORDINARY_WAITS = ("", "ContainerCreating", "PodInitializing")

Place = tuple[str, int]
"""A group of pods, and an index in this group."""


class End(Struct, frozen=True):
    """The exit of a container."""

    container: str
    exit_code: int  # 128 + n for a signal
    reason: str  # the reason that the kubelet reports: Error, Completed, OOMKilled, StartError ...
    message: str  # the message that the kubelet reports if the container never ran
    at: float | None  # whole seconds since the epoch, as Kubernetes reports the time
    termination_message: TerminationMessage = NO_MESSAGE
    main: bool = True  # whether `container` is the container with the command
    init: bool = False  # whether `container` is an init container, so that the command never ran
    memory_limit: str = ""  # such as 16Gi; empty if there is none, or if the kubelet (before 1.33) does not report it


class Wait(Struct, frozen=True):
    """Why a container does not run yet."""

    container: str
    reason: str
    message: str


class InitContainer(Struct, frozen=True):
    """An init container that is running. The pod's other containers start after it has exited."""

    name: str
    started: float | None  # seconds since the epoch


class Disruption(Struct, frozen=True):
    """The reason why the cluster terminates a pod. It is read from the condition DisruptionTarget."""

    reason: str
    message: str
    at: float | None


class Pod(Struct, frozen=True):
    """One pod. Times are seconds since the epoch."""

    uid: str
    name: str
    namespace: str
    node: str
    owner: str  # the uid of its controller
    job: str  # the name of its Job
    group: str
    index: int
    attempt: int  # the number of restarts of the whole gang before this pod
    agent: bool  # whether the agent runs the command
    created: float
    phase: str  # Pending, Running, Succeeded, Failed, Unknown
    done: bool  # whether it has succeeded; the kubelet sets the phase one or two seconds later, after its clean-up
    started: float | None  # the last start of its command
    running: bool  # whether its command runs
    restarts: int  # restarts of its command; those of a StatefulSet's pod after its final verdict are not counted
    end: End | None  # the final exit of its command, or of another container that caused the failure of the pod
    before: End | None  # the exit before its command was restarted
    wait: Wait | None
    init: InitContainer | None  # the init container that is running; sidecars are not included
    claims: tuple[str, ...]  # the names of the PersistentVolumeClaims that it mounts
    unschedulable: str  # the message of the scheduler while no node has room for the pod
    gated: bool  # whether a scheduling gate prevents it from being scheduled
    scheduled: float | None  # when it was assigned to a node
    ready_to_start: float | None  # when its volumes and network were ready; images and containers come next
    deletion_requested: float | None  # when its deletion was requested
    due: float | None  # when the deletion should be complete
    deleted: bool  # whether it no longer exists
    disruption: Disruption | None
    reason: str  # the kubelet's reason if the kubelet terminated or rejected the pod; `message` explains the reason
    message: str
    silent: bool  # whether its node has stopped reporting
    beside: tuple[str, ...] = ()  # the failures of containers beside the container with the command, as phrases

    @property
    def place(self) -> Place:
        """The group of the pod and its index in the group."""
        return self.group, self.index

    @property
    def source(self) -> str:
        """The source of the lines that the agent itself prints, such as `node 0` (docs/design/agent.md)."""
        if self.group == NODE:
            return f"node {self.index}"
        return LAUNCHER if self.group == LAUNCHER else f"{self.group}-{self.index}"

    @property
    def succeeded(self) -> bool:
        """Whether the pod has succeeded."""
        return self.end is not None and self.end.exit_code == 0 and self.phase != "Failed"

    @property
    def over(self) -> bool:
        """Whether the pod's command has exited and will not be restarted."""
        return self.end is not None or self.deleted or self.phase in ("Succeeded", "Failed")

    @property
    def lost(self) -> bool:
        """Whether the pod was deleted or released, and its node did not report the exit of its command.

        To release the pod of a lost node, stepset sets the phase to Failed. The kubelet sets this phase only together
        with a reason, or after it has reported the exit of the containers.
        """
        if self.end is not None or self.started is None or self.reason:
            return False
        return self.phase == "Failed" or (self.silent and self.deleted)


def relevance(pod: Pod) -> tuple[bool, bool, float]:
    """Returns a sort key. Pods that explain the failure of their attempt come first."""
    failed = pod.end is not None and not pod.succeeded
    at = pod.end.at if pod.end is not None and pod.end.at is not None else float("inf")
    return not failed and pod.disruption is None, pod.deletion_requested is not None and pod.disruption is None, at


def read_pod(data: Fields, deleted: bool, controller: Owner | None = None) -> Pod:
    """Reads a pod.

    Args:
        data: the pod. If it was deleted, this is its last known state.
        deleted: whether the pod no longer exists.
        controller: the pod's controller, if the caller has already read it.
    """
    meta, spec, status = part(data, "metadata"), part(data, "spec"), part(data, "status")
    labels, annotations = part(meta, "labels"), part(meta, "annotations")
    marks = {**annotations, **labels}
    controller = controller or controller_of(data)
    agent = _has_agent(spec)
    by_type = conditions(status)
    scheduled, ready = by_type.get("PodScheduled", {}), by_type.get("Ready")
    due = time_of(meta, "deletionTimestamp")
    # A pod that is being deleted is not restarted, whatever its restartPolicy is.
    policy = text(spec, "restartPolicy") if due is None and not deleted else "Never"
    own, sidecars = list(rows(status, "containerStatuses")), _sidecars(spec)
    init = list(rows(status, "initContainerStatuses"))
    every = [*init, *own]
    main = next((row for row in own if text(row, "name") == CONTAINER), own[0] if own else None)
    others = [row for row in every if row is not main]
    command, phase = _command(main, agent, policy), text(status, "phase")
    end = command.end
    if end is None or end.exit_code == 0:
        # The kubelet itself restarts and stops sidecars. Their failure is not a failure of the pod.
        end = _failed_container((row for row in others if text(row, "name") not in sidecars), init, phase) or end
    return Pod(
        uid=text(meta, "uid"),
        name=text(meta, "name"),
        namespace=text(meta, "namespace"),
        node=text(spec, "nodeName"),
        owner=controller.uid,
        job=controller.name if controller.kind == "Job" else "",
        group=next((text(marks, name) for name in (GROUP, *_GROUPS) if name in marks), NODE),
        index=_index(marks, text(meta, "name")),
        attempt=next((number(marks, name) for name in _ATTEMPTS if name in marks), 0),
        agent=agent,
        created=time_of(meta, "creationTimestamp") or 0.0,
        phase=phase,
        done=phase == "Succeeded" or (agent and policy != "Always" and _agent_succeeded(spec, status)),
        started=command.started,
        running=command.running and not deleted,
        restarts=command.restarts,
        end=end,
        before=command.before,
        wait=None if policy == "Always" and command.end is not None else next(iter(_waits(every)), None),
        init=_running_init(row for row in init if text(row, "name") not in sidecars),
        beside=tuple(_failures_beside(row for row in others if row in own or text(row, "name") in sidecars)),
        claims=tuple(_claims(spec, text(meta, "name"))),
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
        # If a node does not answer, the node controller changes only the condition Ready of the pods.
        silent=phase == "Running" and not holds(ready) and holds(by_type.get("ContainersReady")),
    )


class _Command(Struct, frozen=True):
    """The state of the command of a pod. The fields are those of `Pod`."""

    restarts: int = 0
    running: bool = False
    started: float | None = None
    end: End | None = None
    before: End | None = None


def _command(main: Fields | None, agent: bool, policy: str) -> _Command:
    """Reads the status of the container `main` with the command."""
    if main is None:
        return _Command()
    state, last = part(main, "state"), part(main, "lastState", "terminated")
    running, ended = part(state, "running"), part(state, "terminated")
    restarts, started = number(main, "restartCount"), time_of(running or ended or last, "startedAt")
    if policy != "Always":
        again = policy == "OnFailure" and number(ended, "exitCode") != 0
        end = _end(main, ended, agent) if ended and not again else None
        return _Command(restarts, bool(running), started, end, _end(main, last, agent) if last else None)
    # The pod of a StatefulSet is always restarted. Its verdict is final after the pod has become Ready or has
    # succeeded. From then on, the pod only waits (docs/targets.md).
    verdict = ended or last
    if verdict and (number(verdict, "exitCode") == 0 or (running and main.get("ready") is True)):
        earlier = max(0, restarts - bool(running))
        return _Command(earlier, started=time_of(verdict, "startedAt"), end=_end(main, verdict, agent))
    return _Command(restarts, bool(running), started, before=_end(main, verdict, agent) if verdict else None)


def _failed_container(every: Iterable[Fields], init: Sequence[Fields], phase: str) -> End | None:
    """Returns the exit of a container beside the command if the pod failed because of this exit."""
    ends = ((row, part(row, "state", "terminated")) for row in every if phase == "Failed")
    found = next(((row, ended) for row, ended in ends if number(ended, "exitCode")), None)
    return None if found is None else structs.replace(_end(*found, agent=False), main=False, init=found[0] in init)


def _failures_beside(every: Iterable[Fields]) -> Iterator[str]:
    """Yields a phrase for each failure of the containers beside the container with the command.

    Exit code 143 is no failure. A sidecar exits with this code when the kubelet stops the sidecar with SIGTERM.
    """
    for row in every:
        name = text(row, "name")
        last, ended = (part(row, state, "terminated") for state in ("lastState", "state"))
        if code := number(last, "exitCode"):
            yield f"container {name} exited with code {code}, and was restarted"
        if (code := number(ended, "exitCode")) not in (0, 143):
            yield f"container {name} ended with exit code {code}"


def _end(row: Fields, ended: Fields, agent: bool) -> End:
    code, reason = number(ended, "exitCode"), text(ended, "reason")
    ran = reason not in ("StartError", "ContainerCannotRun")
    message = text(ended, "message")
    return End(
        container=text(row, "name"),
        exit_code=code,
        reason=reason,
        # Each layer between the kubelet and the kernel prepends its own text.
        message="" if ran else one_line(message).rpartition("unable to start container process: ")[2],
        at=time_of(ended, "finishedAt"),
        termination_message=read_termination_message(message, code, agent) if ran else NO_MESSAGE,
        memory_limit=text(part(row, "resources", "limits"), "memory"),
    )


def _waits(every: Iterable[Fields]) -> list[Wait]:
    """Returns the waiting containers. Containers with a problem come first, and then the training container.

    A problem of the training container occurs only after all init containers have completed.
    """
    found = [
        Wait(text(row, "name"), text(why, "reason"), one_line(text(why, "message")))
        for row in every
        if (why := part(row, "state", "waiting"))
    ]
    return sorted(found, key=lambda wait: (wait.reason in _ORDINARY_WAITS, wait.container != CONTAINER))


def _running_init(init: Iterable[Fields]) -> InitContainer | None:
    running = ((row, part(row, "state", "running")) for row in init)
    found = (InitContainer(text(row, "name"), time_of(since, "startedAt")) for row, since in running if since)
    return next(found, None)


def _sidecars(spec: Fields) -> frozenset[str]:
    """Returns the names of a pod's native sidecars (targets/pods/sidecars.py)."""
    return frozenset(
        text(row, "name") for row in rows(spec, "initContainers") if text(row, "restartPolicy") == "Always"
    )


def _has_agent(spec: Fields) -> bool:
    command = next((row.get("command") for row in rows(spec, "containers") if text(row, "name") == CONTAINER), None)
    return isinstance(command, list) and any(isinstance(word, str) and f"{AGENT_DIR}/" in word for word in command)


def _agent_succeeded(spec: Fields, status: Fields) -> bool:
    """Returns whether the phase of a pod will be `Succeeded`.

    The phase is certain if the only container of the pod runs stepset's agent and has exited with 0. The phase is not
    certain for a pod with native sidecars. The kubelet may need the whole grace period to stop the sidecars, and the
    pod may be evicted in this period.

    Without the agent, the pod may still fail. The kubelet reports an eviction only after all containers have exited
    (kubernetes v1.36.3 pkg/kubelet/status/status_manager.go mergePodStatus). A command that was stopped because of the
    eviction may exit with 0. The agent exits with 0 only if it was not stopped.
    """
    own = list(rows(spec, "containers"))
    # The restartPolicy of the container itself may restart the container after exit code 0.
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
    # The scheduler appends `not found` to a message about a claim.
    message = one_line(text(scheduled, "message")).removesuffix(". not found")
    return message or text(scheduled, "reason")


def _claims(spec: Fields, pod: str) -> Iterator[str]:
    for row in rows(spec, "volumes"):
        if "ephemeral" in row:  # Kubernetes creates the claim, and derives its name from the pod and the volume
            yield f"{pod}-{text(row, 'name')}"
        elif name := text(part(row, "persistentVolumeClaim"), "claimName"):
            yield name


def _since(condition: Fields | None) -> float | None:
    """Returns when a condition became true, or None if it is not true."""
    return time_of(condition, "lastTransitionTime") if condition is not None and holds(condition) else None


def _disruption(condition: Fields | None) -> Disruption | None:
    if condition is None or not holds(condition):
        return None
    return Disruption(text(condition, "reason"), one_line(text(condition, "message")), _since(condition))
