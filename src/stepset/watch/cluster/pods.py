"""A pod as it matters to a run: read once, when it changes, into a few fields.

Called by RunObjects. What a pod's variables hold is not among the fields, so that no secret can go further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stepset.plan.model import LAUNCHER, NODE
from stepset.targets.identity import GROUP
from stepset.targets.names import AGENT_DIR, CONTAINER
from stepset.watch.cluster.fields import Fields, conditions, holds, number, one_line, part, rows, text, time_of
from stepset.watch.cluster.message import SILENT, Said, said

_ATTEMPTS = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count")
_INDEXES = ("batch.kubernetes.io/job-completion-index", "volcano.sh/task-index", "apps.kubernetes.io/pod-index")
_GROUPS = (GROUP, "jobset.sigs.k8s.io/replicatedjob-name", "volcano.sh/task-spec")
_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
_ORDINARY_WAITS = ("", "ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class End:
    """How a container ended.

    Args:
        container: which.
        exit_code: its exit code; 128 + n for a signal.
        reason: the kubelet's word for it: Error, Completed, OOMKilled, StartError ...
        message: the kubelet's, where the container never ran.
        at: when, in whole seconds since the epoch: Kubernetes does not say it more exactly.
        said: what its termination message tells.
        main: it is the one with the command.
    """

    container: str
    exit_code: int
    reason: str
    message: str
    at: float | None
    said: Said = SILENT
    main: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a container does not run yet."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Disruption:
    """Why the cluster ends a pod: the condition DisruptionTarget."""

    reason: str
    message: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. Times are seconds since the epoch.

    Args:
        uid, name, node: its identity, and where it is.
        owner: uid of what made it; of a JobSet's pods that of the JobSet.
        job: name of the Job that holds it.
        group, index: which of which group.
        attempt: gang restarts before it.
        agent: whether the agent runs around its command.
        created: when it was made.
        phase: Pending, Running, Succeeded, Failed, Unknown.
        done: it has succeeded. The kubelet says so of the pod only when it has cleared up, a second or two after the
            containers.
        started: when its command began, last time.
        running: its command runs.
        restarts: how often its command was started again, not counting the start after which a StatefulSet's pod only
            holds its verdict.
        end: how it ended, for good; of several containers the one that failed.
        before: how its command ended before it was started again.
        wait: why a container does not run.
        unschedulable: the scheduler's words, while no node has room for it.
        gated: somebody keeps it from the scheduler until later.
        scheduled: when it was given a node.
        housed: since when its volumes and its network are there, and only images and containers are wanting.
        asked: when somebody asked for its deletion.
        due: when it should be gone.
        gone: it is.
        disruption: why the cluster ends it.
        reason, message: the kubelet's, where it ended the pod or would not have it.
        silent: its node has stopped to report.
    """

    uid: str
    name: str
    node: str
    owner: str
    job: str
    group: str
    index: int
    attempt: int
    agent: bool
    created: float
    phase: str
    done: bool
    started: float | None
    running: bool
    restarts: int
    end: End | None
    before: End | None
    wait: Wait | None
    unschedulable: str
    gated: bool
    scheduled: float | None
    housed: float | None
    asked: float | None
    due: float | None
    gone: bool
    disruption: Disruption | None
    reason: str
    message: str
    silent: bool

    @property
    def source(self) -> str:
        """How its own lines are prefixed (docs/design/agent.md)."""
        if self.group == NODE:
            return f"node {self.index}"
        return LAUNCHER if self.group == LAUNCHER else f"{self.group}-{self.index}"

    @property
    def succeeded(self) -> bool:
        """It ended, and well."""
        return self.end is not None and self.end.exit_code == 0 and self.phase != "Failed"

    @property
    def over(self) -> bool:
        """Its command will not run any more."""
        return self.end is not None or self.gone or self.phase in ("Succeeded", "Failed")


def read_pod(data: Fields, gone: bool) -> Pod:
    """Reads a pod.

    Args:
        data: the object.
        gone: it was deleted, and this is how it was last seen.
    """
    meta, spec, status = part(data, "metadata"), part(data, "spec"), part(data, "status")
    labels, annotations = part(meta, "labels"), part(meta, "annotations")
    marks = {**annotations, **labels}
    controller = next(iter(rows(meta, "ownerReferences")), {})
    agent = _has_agent(spec)
    told = conditions(status)
    scheduled, ready = told.get("PodScheduled", {}), told.get("Ready")
    due = time_of(meta, "deletionTimestamp")
    # What is told to go is not started again, whatever its policy.
    policy = text(spec, "restartPolicy") if due is None and not gone else "Never"
    states = _Containers(status, agent, policy)
    return Pod(
        uid=text(meta, "uid"),
        name=text(meta, "name"),
        node=text(spec, "nodeName"),
        owner=text(labels, _JOBSET_UID) or text(controller, "uid"),
        job=text(controller, "name") if text(controller, "kind") == "Job" else "",
        group=next((text(marks, name) for name in _GROUPS if name in marks), NODE),
        index=_index(marks, text(meta, "name")),
        attempt=next((number(marks, name) for name in _ATTEMPTS if name in marks), 0),
        agent=agent,
        created=time_of(meta, "creationTimestamp") or 0.0,
        phase=text(status, "phase"),
        done=text(status, "phase") == "Succeeded" or (agent and policy != "Always" and _all_well(spec, status)),
        started=states.started,
        running=states.running and not gone,
        restarts=states.restarts,
        end=states.end,
        before=states.before,
        wait=states.wait,
        unschedulable=_unschedulable(scheduled),
        gated=text(scheduled, "reason") == "SchedulingGated",
        scheduled=_since(scheduled),
        housed=_since(told.get("PodReadyToStartContainers")),
        asked=None if due is None else due - number(meta, "deletionGracePeriodSeconds"),
        due=due,
        gone=gone,
        disruption=_disruption(told.get("DisruptionTarget")),
        reason=text(status, "reason"),
        message=one_line(text(status, "message")),
        # Who takes a silent node's pods out of service says so of the pod, and not of its containers.
        silent=text(status, "phase") == "Running" and not holds(ready) and holds(told.get("ContainersReady")),
    )


class _Containers:
    """A pod's containers: what became of the command, and what keeps it from running."""

    def __init__(self, status: Fields, agent: bool, policy: str) -> None:
        self.restarts = 0
        self.running = False
        self.started: float | None = None
        self.end: End | None = None
        self.before: End | None = None
        own = list(rows(status, "containerStatuses"))
        every = [*rows(status, "initContainerStatuses"), *own]
        self.wait = next(_waits(every), None)
        main = next((row for row in own if text(row, "name") == CONTAINER), own[0] if own else None)
        if main is not None:
            self._read_main(main, agent, policy)
        if self.end is None or self.end.exit_code == 0:
            self._look_for_another(every, main, status)

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
        # A StatefulSet's pod is started again whatever happens. It has its verdict when it is Ready, or has succeeded:
        # from then on it only holds (docs/targets.md).
        verdict = ended or last
        if verdict and (number(verdict, "exitCode") == 0 or (running and main.get("ready") is True)):
            self.end = _end(main, verdict, agent)
            self.started = time_of(verdict, "startedAt")
            self.restarts = max(0, self.restarts - bool(running))
            self.running, self.wait = False, None
        elif verdict:
            self.before = _end(main, verdict, agent)

    def _look_for_another(self, every: Iterable[Fields], main: Fields | None, status: Fields) -> None:
        """Another container that failed, and the pod with it."""
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
        # Each layer between kubelet and kernel puts its own words before those that count.
        message="" if ran else one_line(message).rpartition("unable to start container process: ")[2],
        at=time_of(ended, "finishedAt"),
        said=said(message, code, agent) if ran else SILENT,
    )


def _waits(every: Iterable[Fields]) -> Iterator[Wait]:
    """Containers that wait, those with trouble first."""
    waiting = [(row, part(row, "state", "waiting")) for row in every]
    found = [
        Wait(text(row, "name"), text(why, "reason"), one_line(text(why, "message"))) for row, why in waiting if why
    ]
    yield from sorted(found, key=lambda wait: wait.reason in _ORDINARY_WAITS)


def _has_agent(spec: Fields) -> bool:
    for container in rows(spec, "containers"):
        if text(container, "name") == CONTAINER:
            command = container.get("command")
            return isinstance(command, list) and any(f"{AGENT_DIR}/" in word for word in command)
    return False


def _all_well(spec: Fields, status: Fields) -> bool:
    """Whether the only container has ended with 0, so that `Succeeded` is all that can come, if it has our agent.

    Without it a pod may yet be called Failed: the kubelet keeps an eviction to itself until everything has ended
    (kubernetes v1.36.3 pkg/kubelet/status/status_manager.go mergePodStatus), and a command that is told to go may end
    with 0. The agent says 0 only if nobody told it; of containers beside it nobody knows.
    """
    own = list(rows(spec, "containers"))
    if len(own) != 1 or "restartPolicy" in own[0]:  # its own, by which even 0 may not be the end
        return False
    ends = [part(row, "state", "terminated") for row in rows(status, "containerStatuses")]
    return [number(end, "exitCode", -1) for end in ends] == [0] and text(status, "phase") != "Failed"


def _index(marks: Fields, name: str) -> int:
    for mark in _INDEXES:
        if mark in marks:
            return number(marks, mark)
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def _unschedulable(scheduled: Fields) -> str:
    if not scheduled or holds(scheduled) or text(scheduled, "reason") == "SchedulingGated":
        return ""
    return one_line(text(scheduled, "message")) or text(scheduled, "reason")


def _since(condition: Fields | None) -> float | None:
    """Since when a condition holds, if it does."""
    return time_of(condition, "lastTransitionTime") if condition is not None and holds(condition) else None


def _disruption(condition: Fields | None) -> Disruption | None:
    if condition is None or not holds(condition):
        return None
    return Disruption(text(condition, "reason"), one_line(text(condition, "message")), _since(condition))
