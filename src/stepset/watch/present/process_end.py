"""Words how the process that failed first ended, and that a run exceeded its deadline."""

from __future__ import annotations

import math
import signal as signals
from dataclasses import dataclass
from typing import Literal

from stepset.watch.present.sentences import duration


@dataclass(frozen=True, kw_only=True)
class ProcessEnd:
    """How a process or a pod ended.

    Args:
        source: the source of its lines, such as `rank 3`.
        pod, node: where it ran; empty if unknown.
        how: what happened, such as `was evicted`, if a pod or the agent reports it.
        by_hang: whether the agent stopped the process because of a hang.
        rejected: whether the agent rejected the job or the result; the exit code is then that of the agent.
        exit_code, signal: the exit code, or the signal that terminated the process.
        out_of_memory: whether the memory was full. Empty if it was not, or if an error of the process states it.
        memory_limit: the memory limit, which the message contains if the memory was full; empty if unknown.
        unknown_sender: whether a signal terminated the process, and the sender of the signal is unknown.
        peer: the rank that had exited with code 0 before the process lost its peer; empty if there is none.
        after: the number of seconds since the exit of `peer`.
        error: the error of the process.
        last_line: the last line of the process, if there is no error and the line may be the reason of the exit.
    """

    source: str
    pod: str = ""
    node: str = ""
    how: str = ""
    by_hang: bool = False
    rejected: bool = False
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: Literal["", "certain", "likely"] = ""
    memory_limit: str = ""
    unknown_sender: bool = False
    peer: str = ""
    after: float = 0.0
    error: str = ""
    last_line: str = ""


def end_of_process(end: ProcessEnd) -> str:
    """Returns one sentence that describes how a process ended.

    >>> end_of_process(ProcessEnd(source="rank 3", pod="node-1", exit_code=1, error="ValueError: bad batch"))
    'rank 3 (pod node-1) exited with code 1: ValueError: bad batch'
    """
    # The pod of a simulated node has the same name as the node.
    node = f" on {end.node}" if end.node and end.node.replace(" ", "-") != end.pod else ""
    subject = end.source + (f" (pod {end.pod}{node})" if end.pod and end.pod != end.source else node)
    if end.rejected and end.error and not end.how:
        return f"{subject}: {end.error}"
    how = end.how or _how(end)
    if end.out_of_memory:
        how += ", out of memory" if end.out_of_memory == "certain" else ", most likely out of memory"
        how += f" (limit {end.memory_limit})" if end.memory_limit else ""
    elif end.unknown_sender:
        how += "; who sent the signal is unknown"
    if end.peer:
        later = f", {duration(int(end.after))}" if 1 <= end.after < math.inf else ""
        how += f"{later} after {end.peer} had exited with code 0"
    if end.error:
        return f"{subject} {how}: {end.error}"
    return f"{subject} {how}; its last line: {end.last_line}" if end.last_line else f"{subject} {how}."


def _how(end: ProcessEnd) -> str:
    if end.by_hang:
        return "was stopped because of a hang"
    if end.signal is not None:
        return f"was killed by {signal_name(end.signal)}"
    if not end.exit_code:
        return "failed"
    number = signal_of_exit_code(end.exit_code)
    return f"exited with code {end.exit_code}" + (f" ({signal_name(number)})" if number is not None else "")


def signal_of_exit_code(code: int) -> int | None:
    """Returns the signal n that a shell or a container runtime reports as exit code 128 + n, or None."""
    return code - 128 if 128 < code < 128 + signals.NSIG else None


def signal_name(number: int) -> str:
    """Returns the name of a signal.

    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exceeded_sentence(deadline: str, reason: str = "", raised: str = "") -> str:
    """Returns the sentence for a run that exceeded its deadline.

    Args:
        deadline: the deadline as it is written in the job. "" if it is unknown.
        reason: what is known about the ranks, such as the words of a hang.
        raised: the rank that had printed a traceback and had not exited.
    """
    traceback = f"{raised} had printed a traceback and had not exited" if raised else ""
    limit = f" of {deadline}" if deadline else ""
    found = "; ".join(filter(None, (f"the run took longer than its deadline{limit}", traceback, reason)))
    return f"{found}."
