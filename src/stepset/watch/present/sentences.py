"""All sentences that describe the state of a run. Contains only pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from stepset.printable import printable
from stepset.run_status import Failure, FailureKind, Phase, Progress, RunStatus, Waiting

Style = Callable[[str], str]

_HOURS = 48
"""From this number of hours on, a duration is in days and hours."""
_RESOURCES = 8
"""The maximum number of resources of a waiting run in a sentence."""
_RESUMED = re.compile(r"(?P<text>resuming from .*, written) (?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d)", re.S)


def counted(count: int, what: str, plural: str = "") -> str:
    """Returns a number with its noun in the singular or plural.

    >>> counted(1, "node"), counted(2, "process", "processes")
    ('1 node', '2 processes')
    """
    return f"{count} {what if count == 1 else plural or f'{what}s'}"


def duration(seconds: float) -> str:
    """Returns a length of time as text.

    >>> duration(3.21), duration(7), duration(75), duration(3720), duration(200_000)
    ('3.2 s', '7 s', '1m15s', '1h02m', '2d07h')
    """
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _HOURS:
        return f"{hours // 24}d{hours % 24:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{secs:02}s"


def phase_words(phase: Phase, reason: str = "") -> str:
    """Returns a phase with its reason.

    After the run has finished, the reason is omitted. The sentences about a failure already state its kind.

    >>> phase_words(Phase.PENDING, "Queued"), phase_words(Phase.RUNNING), phase_words(Phase.FAILED, "UserError")
    ('Pending (Queued)', 'Running', 'Failed')
    """
    return f"{phase.value} ({reason})" if reason and not phase.final else phase.value


def phase_sentence(status: RunStatus) -> str:
    """Returns the phase of a run, the number of its ranks, and the number of its restarts.

    >>> phase_sentence(RunStatus("digits-1", "digits", "local", Phase.RUNNING, world_size=4, attempt=2))
    'run digits-1: Running, 4 ranks, restart 2'
    """
    size = counted(status.world_size, "rank") if status.world_size else ""
    parts = (phase_words(status.phase, status.reason), size, _restart_words(status.attempt))
    return f"run {status.name}: {', '.join(part for part in parts if part)}"


def percent(share: float) -> str:
    """Returns a fraction as whole percent, rounded down: 100 % means that nothing remains.

    >>> percent(0.125), percent(0.175), percent(0.29), percent(0.999), percent(1.0)
    ('12 %', '17 %', '29 %', '99 %', '100 %')
    """
    return f"{round(100 * share, 6) // 1:.0f} %"


def progress_words(progress: Progress | None) -> str:
    """Returns the last progress report of the training code as text.

    >>> progress_words(Progress(12, 0.4, {"loss": 0.31236, "lr": 1e-05})), progress_words(Progress(step=3))
    ('40 %, step 12, loss=0.31236, lr=1e-05', 'step 3')
    """
    if progress is None:
        return ""
    parts = [] if progress.progress is None else [percent(progress.progress)]
    parts += [] if progress.step is None else [f"step {progress.step}"]
    parts += [f"{name}={value:.5g}" for name, value in progress.metrics.items()]
    return ", ".join(parts)


def ranks_in_state(status: RunStatus, state: str) -> tuple[int, int, str]:
    """Returns the number of ranks in a state, the total number (0 if unknown), and the word `ranks`.

    If the ranks are unknown, nodes are counted, and the word is `nodes`.
    """
    states, what = [row.state for row in status.ranks if row.rank is not None], "ranks"
    total = status.world_size or len(states)
    nodes = [row.state for row in status.ranks if row.source.startswith("node ")]
    if nodes and not states:
        states, what, total = nodes, "nodes", len(nodes)
    return states.count(state), total, what


def ranks_words(status: RunStatus) -> str:
    """Returns how many ranks are running. After the run has finished, returns how many ranks have succeeded.

    >>> ranks_words(RunStatus("a-1", "a", "local", Phase.RUNNING, world_size=4))
    '0/4 ranks running'
    """
    state = "Succeeded" if status.phase.final else "Running"
    count, total, what = ranks_in_state(status, state)
    return f"{count}/{total} {what} {state.lower()}" if total else ""


def all_ended(status: RunStatus) -> bool:
    """Returns whether all ranks have exited but the run is still Running. The run then finishes or restarts soon."""
    states = {row.state for row in status.ranks if row.rank is not None}
    return status.phase is Phase.RUNNING and bool(states) and not states & {"Pending", "Running"}


def state_line(status: RunStatus) -> str:
    """Returns the phase, ranks, restarts and progress in one line.

    The line contains no times. Therefore the line changes only if the run changes.

    >>> state_line(RunStatus("a-1", "a", "local", Phase.RUNNING, world_size=4, attempt=1, progress=Progress(step=3)))
    'Running, 0/4 ranks running, restart 1, step 3'
    """
    parts = (
        phase_words(status.phase, status.reason),
        ranks_words(status),
        _restart_words(status.attempt),
        progress_words(status.progress),
    )
    return ", ".join(part for part in parts if part)


def restart_sentence(attempt: int, why: str) -> str:
    """Returns why the run was restarted for the `attempt`-th time. If `attempt` is 0, a single pod was started again.

    >>> restart_sentence(1, "rank 3 exited with code 1."), restart_sentence(0, "rank 3 exited with code 1.")
    ('restart 1: rank 3 exited with code 1.', 'started again: rank 3 exited with code 1.')
    """
    return f"{_restart_words(attempt) or 'started again'}: {why}"


def is_restart(note: str) -> bool:
    """Returns whether a note of RunStatus is a `restart_sentence`."""
    return re.match(r"restart \d+: |started again: ", note) is not None


def last_restart(status: RunStatus) -> str:
    """Returns the note about the last restart of the run or of one of its pods. Returns "" if there is no such note."""
    return next((note for note in reversed(status.notes) if is_restart(note)), "")


def _restart_words(attempt: int) -> str:
    return f"restart {attempt}" if attempt else ""


def queue_sentence(waiting: Waiting) -> str:
    """Returns the queue and the position of a waiting run, the reason for the wait, and what the run requests.

    >>> queue_sentence(Waiting("team", "Pending", "insufficient quota for cpu in flavor default", position=3))
    'the run waits in queue team at position 3: insufficient quota for cpu in flavor default'
    >>> queue_sentence(Waiting("team"))
    'the run waits in queue team: no reason is known yet'
    >>> queue_sentence(Waiting("team", position=3, requests={"cpu": "64", "nvidia.com/gpu": "16"}))
    'the run waits in queue team at position 3; it requests cpu 64, nvidia.com/gpu 16'
    >>> queue_sentence(Waiting("team", "Inadmissible", "ClusterQueue gpus doesn't exist", change="create it"))
    "the run waits in queue team and cannot be admitted without a change: ClusterQueue gpus doesn't exist; create it"
    """
    if waiting.inadmissible:
        why = f"{waiting.message}; {waiting.change}" if waiting.message else waiting.change
        return f"the run waits in queue {waiting.queue} and cannot be admitted without a change: {why}"
    requested = ", ".join(f"{name} {amount}" for name, amount in list(waiting.requests.items())[:_RESOURCES])
    more = f"; it requests {requested}" if requested else ""
    if waiting.position is None:
        return f"the run waits in queue {waiting.queue}: {waiting.message or 'no reason is known yet'}{more}"
    # While other runs precede this run, Kueue may not have tried to admit this run yet. Then Kueue reports no reason.
    why = f": {waiting.message}" if waiting.message else ""
    return f"the run waits in queue {waiting.queue} at position {waiting.position}{why}{more}"


def waiting_for_pods(status: RunStatus, see: str) -> str:
    """Returns why a run has no lines yet, or "" if a pod of the run has started or the run has finished.

    Args:
        see: the command that prints the status.

    >>> waiting_for_pods(RunStatus("a-1", "a", "kubernetes", reason="Queued", waiting=Waiting("q")), "status")
    'no pod has started yet; the run is Pending (Queued): the run waits in queue q: no reason is known yet; see status'
    """
    waits = status.phase in (Phase.PENDING, Phase.SUSPENDED) and all(row.state == "Pending" for row in status.ranks)
    if not waits or status.attempt:
        return ""
    why = phase_words(status.phase, status.reason)
    if status.waiting is not None:
        why += f": {queue_sentence(status.waiting)}"
    elif status.trouble is not None:
        why += f": {what_happened(status.trouble).rstrip('.')}"
    return f"no pod has started yet; the run is {why}; see {see}"


LOGS_DELETED = "the logs were deleted with the pods of the run; see the cluster's log storage, if it has one"

REMOVED = "the run is removed from the cluster, because it cannot stay suspended; its logs are deleted with its pods"
"""The note on a run that was deleted because it could not start in time, and cannot be suspended permanently."""


def command_for(command: str, status: RunStatus, flags: str | None = None) -> str:
    """Returns a command about a run, for example the command that prints the lines of the run.

    Args:
        command: the name of the command, such as `logs`.
        flags: the flags that select the run's backend and cluster (`BackendArgs.as_flags`). None means that they are
            unknown. Then the command names only the backend.
    """
    backend = " --backend kubernetes" if status.backend == "kubernetes" else ""
    return f"stepset {command} {status.name}{backend if flags is None else flags}"


def logs_deleted(status: RunStatus) -> bool:
    """Returns whether the lines of a finished run no longer exist.

    On a cluster, the pods of a cancelled or deleted run are deleted, and their logs with them.

    >>> logs_deleted(RunStatus("digits-1", "digits", "kubernetes", Phase.LOST))
    True
    """
    ended = status.failure.kind if status.failure is not None else None
    gone = status.phase is Phase.LOST or ended in (FailureKind.CANCELLED, FailureKind.LOST)
    return status.backend == "kubernetes" and status.phase.final and gone


def logs_values(status: RunStatus, logs: str) -> list[str]:
    """Returns the values of the row `logs` of a failed run. The argument `logs` is the command or the call that shows
    the lines of the run.

    Returns an empty list if the run was removed, which a note of the run states, or if none of its pods has started.
    """
    if REMOVED in status.notes:
        return []
    if logs_deleted(status):
        return [LOGS_DELETED]
    return [] if _never_started(status) else [logs]


def _never_started(status: RunStatus) -> bool:
    """Returns whether no pod of a run on a cluster has started, for example because the image does not exist.

    >>> _never_started(RunStatus("digits-1", "digits", "kubernetes", Phase.FAILED))
    True
    """
    began = any(row.exit_code is not None or row.signal is not None or row.last_line for row in status.ranks)
    return status.backend == "kubernetes" and status.started is None and not began


def omitted_sentence(count: int, status: RunStatus, logs: str) -> str:
    """Returns how many lines were omitted after the first failure, after the run was stopped, or at its end.

    Args:
        count: the number of these lines.
        status: the last status of the run.
        logs: the command or the call that shows these lines.

    >>> omitted_sentence(1, RunStatus("digits-1", "digits", "local"), "stepset logs digits-1")
    'omitted after the first failure: 1 line of launchers and stopped ranks; stepset logs digits-1 shows every line'
    """
    stopped = status.failure is not None and status.failure.kind in (
        FailureKind.CANCELLED,
        FailureKind.DEADLINE_EXCEEDED,
    )
    when = "while the run was stopped" if stopped else "after the first failure"
    who = "launchers and stopped ranks"
    if status.phase is Phase.SUCCEEDED:
        when = "before the run succeeded"
        who = who if any(row.restarts for row in status.ranks) else "launchers"
    lines = counted(count, "line")
    where = LOGS_DELETED if logs_deleted(status) else f"{logs} shows every line"
    return f"omitted {when}: {lines} of {who}; {where}"


def what_happened(failure: Failure) -> str:
    """Returns the kind of a failure and its message in one line."""
    return f"{failure.kind.value}: {failure.message}"


def trouble_sentence(trouble: Failure) -> str:
    """Returns the problem that keeps a run from making progress, and what to do about it.

    >>> trouble_sentence(Failure(FailureKind.UNSCHEDULABLE, "no room for pod a: 2 Insufficient cpu", "Request less."))
    'trouble: Unschedulable: no room for pod a: 2 Insufficient cpu. Request less.'
    """
    return with_advice(f"trouble: {what_happened(trouble)}", trouble.advice)


def with_advice(sentence: str, advice: str) -> str:
    """Joins a sentence and a piece of advice. The advice is a sentence or an empty string.

    >>> with_advice("run digits-1 was cancelled after 2 s", "Run it again.")
    'run digits-1 was cancelled after 2 s. Run it again.'
    >>> with_advice("rank 1 exited with code 1: ValueError: which?", "Look at the error.")
    'rank 1 exited with code 1: ValueError: which? Look at the error.'
    """
    end = "" if sentence.endswith((".", "!", "?")) else "."
    return f"{sentence}{end} {advice}" if advice else sentence


def end_sentence(status: RunStatus, *, style: Style = str) -> str:
    """Returns how a finished run ended.

    Args:
        style: a function that formats the verb, for example with a colour.

    >>> end_sentence(RunStatus("digits-1", "digits", "local", Phase.SUCCEEDED, created=10.0, finished=22.3, attempt=1))
    'run digits-1 succeeded in 12.3 s after 1 restart'
    >>> end_sentence(RunStatus("digits-1", "digits", "local", Phase.LOST))
    'run digits-1 was lost: no process followed it to its end; look at the machine it ran on'
    """
    spent = duration(status.finished - status.created) if status.finished is not None and status.created else ""
    subject, failure = f"run {printable(status.name)}", status.failure
    if status.phase is Phase.SUCCEEDED:
        restarts = f" after {counted(status.attempt, 'restart')}" if status.attempt else ""
        return f"{subject} {style('succeeded')}{f' in {spent}' if spent else ''}{restarts}"
    after = f" after {spent}" if spent else ""
    if failure is not None and failure.kind is FailureKind.CANCELLED:
        why = failure.message.partition("was cancelled: ")[2]
        return f"{subject} {style('was cancelled')}{after}{f': {printable(why)}' if why else ''}"
    if failure is not None:
        return f"{subject} {style('failed')}{after}: {printable(what_happened(failure))}"
    if status.phase is Phase.LOST:
        why = "no process followed it to its end; look at the machine it ran on"
        return f"{subject} {style('was lost')}{after}: {why}"
    return f"{subject} {style('failed')}{after}; no reason is known"


def alone_sentence(ranks: int) -> str:
    """Returns a note which states that each rank of a successful run has trained alone."""
    return (
        f"no rank joined a process group: each of the {ranks} ranks ran alone. To train one model, call"
        " torch.distributed.init_process_group; with Lightning, pass num_nodes and devices to Trainer or Fabric"
    )


NOT_FINITE = (
    "the result contains null instead of values that JSON cannot express, such as NaN, infinity or an object; a line of"
    " rank 0 names the type of the object"
)
"""The note about a run whose rank 0 reported such a value."""


def resume_sentence(checkpoint: str, written: float, created: float) -> str:
    """Returns from which checkpoint a run continues. `checkpoint` is a path. Times are in seconds since the epoch.

    The text contains the time in the local time zone. The date is left out if the checkpoint was written on the day on
    which the run was created.

    >>> resume_sentence("step-118", 1000.0, 2000.0).rpartition(" ")[0]
    'resuming from step-118, written'
    """
    at = datetime.fromtimestamp(written)
    form = "%H:%M" if at.date() == datetime.fromtimestamp(created).date() else "%Y-%m-%d %H:%M"
    return f"resuming from {checkpoint}, written {at:{form}}"


def is_resume(note: str) -> bool:
    """Returns whether `resume_sentence` has created a note."""
    return _RESUMED.fullmatch(note) is not None


def resumed_note(note: str, created: float) -> tuple[str, float] | None:
    """Returns the text and the time of a note that `resume_sentence` has created. Returns None for other notes.

    The note must have been created in the current time zone.

    Args:
        created: the time at which the run was created, in seconds since the epoch.

    >>> text, at = resumed_note(resume_sentence("step-118", 960.0, 2000.0), 2000.0)
    >>> text, at
    ('resuming from step-118, written', 960.0)
    """
    match = _RESUMED.fullmatch(note)
    if match is None:
        return None
    date = match["date"] or f"{datetime.fromtimestamp(created):%Y-%m-%d}"
    try:
        return match["text"], datetime.fromisoformat(f"{date} {match['time']}").timestamp()
    except (ValueError, OverflowError):
        return None
