"""All sentences that describe a run's state. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from stepset.printable import printable
from stepset.run_status import Failure, FailureKind, Phase, Progress, RunStatus, Waiting

Style = Callable[[str], str]


def counted(count: int, what: str, plural: str = "") -> str:
    """A number and its noun.

    >>> counted(1, "node"), counted(2, "process", "processes")
    ('1 node', '2 processes')
    """
    return f"{count} {what if count == 1 else plural or f'{what}s'}"


def duration(seconds: float) -> str:
    """A length of time.

    >>> duration(3.21), duration(7), duration(75), duration(3720)
    ('3.2 s', '7 s', '1m15s', '1h02m')
    """
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{secs:02}s"


def phase_words(phase: Phase, reason: str = "") -> str:
    """A phase with its reason.

    >>> phase_words(Phase.PENDING, "Queued"), phase_words(Phase.RUNNING)
    ('Pending (Queued)', 'Running')
    """
    return f"{phase.value} ({reason})" if reason else phase.value


def phase_sentence(status: RunStatus) -> str:
    """The phase of a run, its size and its restarts.

    >>> phase_sentence(RunStatus("digits-1", "digits", "local", Phase.RUNNING, world_size=4, attempt=2))
    'run digits-1: Running, 4 ranks, restart 2'
    """
    size = counted(status.world_size, "rank") if status.world_size else ""
    parts = (phase_words(status.phase, status.reason), size, _restart_words(status.attempt))
    return f"run {status.name}: {', '.join(part for part in parts if part)}"


def progress_words(progress: Progress | None) -> str:
    """The last progress report of the training code.

    >>> progress_words(Progress(12, 0.4, {"loss": 0.31236, "lr": 1e-05})), progress_words(Progress(step=3))
    ('40 %, step 12, loss=0.31236, lr=1e-05', 'step 3')
    """
    if progress is None:
        return ""
    parts = [] if progress.progress is None else [f"{100 * progress.progress:.0f} %"]
    parts += [] if progress.step is None else [f"step {progress.step}"]
    parts += [f"{name}={value:.5g}" for name, value in progress.metrics.items()]
    return ", ".join(parts)


def ranks_in_state(status: RunStatus, state: str) -> tuple[int, int, str]:
    """The number of ranks in a state, their total (0 if unknown) and `ranks`; or nodes, if their ranks are unknown."""
    states, what = [row.state for row in status.ranks if row.rank is not None], "ranks"
    total = status.world_size or len(states)
    nodes = [row.state for row in status.ranks if row.source.startswith("node ")]
    if nodes and not states:
        states, what, total = nodes, "nodes", len(nodes)
    return states.count(state), total, what


def ranks_words(status: RunStatus) -> str:
    """How many ranks are running or, once the run is over, have succeeded.

    >>> ranks_words(RunStatus("a-1", "a", "local", Phase.RUNNING, world_size=4))
    '0/4 ranks running'
    """
    state = "Succeeded" if status.phase.final else "Running"
    count, total, what = ranks_in_state(status, state)
    return f"{count}/{total} {what} {state.lower()}" if total else ""


def all_ended(status: RunStatus) -> bool:
    """Whether ranks have ended and none waits or runs, so that the run is about to end or to restart."""
    states = {row.state for row in status.ranks if row.rank is not None}
    return status.phase is Phase.RUNNING and bool(states) and not states & {"Pending", "Running"}


def state_line(status: RunStatus) -> str:
    """Phase, ranks, restarts and progress in one line, without times, so that it changes only with the run.

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
    """Why the run was restarted for the `attempt`-th time; if `attempt` is 0, why a single pod was started again.

    >>> restart_sentence(1, "rank 3 exited with code 1."), restart_sentence(0, "rank 3 exited with code 1.")
    ('restart 1: rank 3 exited with code 1.', 'started again: rank 3 exited with code 1.')
    """
    return f"{_restart_words(attempt) or 'started again'}: {why}"


def is_restart(note: str) -> bool:
    """Whether a note of RunStatus is a `restart_sentence`."""
    return re.match(r"restart \d+: |started again: ", note) is not None


def _restart_words(attempt: int) -> str:
    return f"restart {attempt}" if attempt else ""


def queue_sentence(waiting: Waiting) -> str:
    """In which queue and at which position a run waits, and why.

    >>> queue_sentence(Waiting("team", "Pending", "insufficient quota for cpu in flavor default", position=3))
    'the run waits in queue team at position 3: insufficient quota for cpu in flavor default'
    >>> queue_sentence(Waiting("team"))
    'the run waits in queue team: no reason is known yet'
    >>> queue_sentence(Waiting("team", position=3))
    'the run waits in queue team at position 3'
    """
    if waiting.position is None:
        return f"the run waits in queue {waiting.queue}: {waiting.message or 'no reason is known yet'}"
    # Kueue reports no reason for a run that it has not tried to admit because others are before it.
    why = f": {waiting.message}" if waiting.message else ""
    return f"the run waits in queue {waiting.queue} at position {waiting.position}{why}"


def omitted_sentence(count: int, status: RunStatus) -> str:
    """How many lines after the first failure are not shown, and the command that shows them.

    >>> omitted_sentence(1, RunStatus("digits-1", "digits", "local"))
    'omitted after the first failure: 1 line of launchers and stopped ranks; stepset logs digits-1 shows every line'
    """
    command = f"stepset logs {status.name}" + (" --backend kubernetes" if status.backend == "kubernetes" else "")
    lines = counted(count, "line")
    return f"omitted after the first failure: {lines} of launchers and stopped ranks; {command} shows every line"


def what_happened(failure: Failure) -> str:
    """The kind of a failure and its message in one line."""
    return f"{failure.kind.value}: {failure.message}"


def trouble_sentence(trouble: Failure) -> str:
    """The problem that keeps a run from making progress, and what to do about it.

    >>> trouble_sentence(Failure(FailureKind.UNSCHEDULABLE, "no room for pod a: 2 Insufficient cpu", "Request less."))
    'trouble: Unschedulable: no room for pod a: 2 Insufficient cpu. Request less.'
    """
    return f"trouble: {what_happened(trouble).rstrip('.')}. {trouble.advice}".rstrip()


def end_sentence(status: RunStatus, *, style: Style = str) -> str:
    """How a run that is over ended.

    `style` formats the verb, for example with a colour.

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


def resume_sentence(checkpoint: str, written: float, created: float) -> str:
    """From which checkpoint a run continues; times are in seconds since the epoch, shown in the local time zone.

    The date is left out if the checkpoint was written on the day on which the run was created.

    >>> resume_sentence("step-118", 1000.0, 2000.0).rpartition(" ")[0]
    'resuming from step-118, written'
    """
    at = datetime.fromtimestamp(written)
    form = "%H:%M" if at.date() == datetime.fromtimestamp(created).date() else "%Y-%m-%d %H:%M"
    return f"resuming from {checkpoint}, written {at:{form}}"
