"""Diagnoses a failed run from its observed ends: what failed first, why, and what to do.

The local backend observes processes, the Kubernetes backend pods; the rules are the same.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.run_status import Failure, FailureKind
from stepset.watch.rank_mark import without_rank_mark

TAIL = 20
"""The maximum number of last lines in a Failure."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One unsuccessful end, as observed by a backend."""

    source: str  # as in LogLine, such as rank 3, node 0, launcher, prepare-0; empty for the run as a whole
    at: float  # seconds since the epoch
    rank: int | None = None
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""  # the first real error, if one was found
    kind: FailureKind | None = None  # if known from the agent's checks or a pod's condition
    tail: tuple[str, ...] = ()  # the last lines
    stopped: bool = False  # on purpose, because something else had failed or the run was over
    out_of_memory: bool | None = None  # whether an out-of-memory killer killed it; None if unknown
    how: str = ""  # what happened, such as `was evicted`; empty: derived from exit code and signal


ADVICE = {
    FailureKind.USER_ERROR: "Look at the error and the last lines of that rank, and fix the training code.",
    FailureKind.OUT_OF_MEMORY: (
        "Give each node more memory, or use less: a smaller batch, fewer processes per node, a sharded model."
    ),
    FailureKind.IMAGE_PULL: "Check the image's name and tag, and that the cluster may pull it.",
    FailureKind.UNSCHEDULABLE: "Request less per node, wait for capacity, or loosen the scheduling constraints.",
    FailureKind.RENDEZVOUS: (
        "Check that all ranks start, agree on the world size, and can reach the master's address and port;"
        " then run again."
    ),
    FailureKind.INFRASTRUCTURE: "The training code is not the cause; fix the named problem and run the job again.",
    FailureKind.DEADLINE_EXCEEDED: "Set a longer deadline, or shorten the training.",
    FailureKind.REJECTED: (
        "Change the job or the cluster as the message indicates; without a change, another run fails in the same way."
    ),
    FailureKind.LOST: "Find out what ended the run, and run the job again; a checkpoint_dir lets the training resume.",
    FailureKind.CANCELLED: "Run the job again if it is still needed.",
}

START_ADVICE = "Check the command, and that its program is executable and on the image's PATH."


def make_failure(kind: FailureKind, message: str, **known: Any) -> Failure:
    """Returns a failure with the advice for its kind."""
    return Failure(kind, message, ADVICE[kind], **known)


# Patterns in the text of an error, by kind. The first match counts; all other errors are user errors.
_PATTERNS = (
    (
        FailureKind.OUT_OF_MEMORY,
        r"\bMemoryError\b|can't allocate memory|cannot allocate memory|out of memory|std::bad_alloc|RESOURCE_EXHAUSTED"
        r"|Unable to allocate .* for an array|OutOfMemoryError|not enough memory",
    ),
    (
        FailureKind.INFRASTRUCTURE,
        r"No space left on device|\bENOSPC\b|Disk quota exceeded|Input/output error|Stale file handle",
    ),
    (
        FailureKind.RENDEZVOUS,
        r"Address already in use|EADDRINUSE|Rendezvous\w*(Error|Exception)|rendezvous.*time.?out|time.?out.*rendezvous"
        r"|Timed out (waiting for clients|after \d+ seconds? waiting for clients)|Name or service not known"
        r"|Temporary failure in name resolution|could not be resolved|did not resolve|world size (mismatch|is not)"
        r"|socket has (timed out|failed to connect|failed to listen)",
    ),
)  # fmt: skip

# Errors of a rank that has lost a peer, and is not the cause.
_LOST_PEER = (
    r"connection (closed|reset|refused|was aborted)( by peer)?|broken pipe|peer (closed|disconnected|is gone)"
    r"|connection was likely closed|remote process exited|ncclRemoteError|NCCL communicator was aborted"
    r"|RendezvousClosedError|RendezvousConnectionError|SignalException|SystemExit: 143|lost connection"
)
_SEARCHED = 4096
"""Characters of an error that are searched: some patterns take quadratic time, and training code chooses the text."""
_ERROR_LINE = r"[A-Za-z_][\w.]*?([Ee]rror|Exception|Interrupt|Exit|Fault)\b(?::|$)"


def diagnose(observations: Iterable[Observation], *, restarts: int = 0, events: Sequence[str] = ()) -> Failure | None:
    """Returns the failure that explains all unsuccessful ends, given in any order; None if nothing failed.

    The earliest end is the cause. A pod that was stopped on purpose is never the cause; a rank that only lost its peer
    is the cause only if there is no other candidate. `restarts` and `events` become part of the result.
    """
    every = merge(observations)
    candidates = [o for o in every if not o.stopped]
    if not candidates:
        return None
    first = min(candidates, key=lambda o: (not _of_the_run(o), may_be_aftermath(o), o.at, o.rank is None))
    kind = kind_of(first)
    # Shells and the agent use these codes for a program that is missing or not executable.
    no_program = kind is FailureKind.USER_ERROR and first.exit_code in (126, 127)
    return Failure(
        kind=kind,
        message=_message(first, kind),
        advice=START_ADVICE if no_program else ADVICE[kind],
        rank=first.rank,
        pod=first.pod,
        node=first.node,
        exit_code=first.exit_code,
        signal=first.signal,
        error=error_of(first),
        tail=tuple(without_rank_mark(first.source, line) for line in first.tail[-TAIL:]),
        events=tuple(events),
        restarts=restarts,
        aftermath=tuple(dict.fromkeys(o.source for o in every if o.source and _may_have_caused(first, o))),
    )


def _may_have_caused(first: Observation, other: Observation) -> bool:
    """Whether `first` may have caused `other`; False if both are known to be of the same kind."""
    alike = other.kind is not None and other.kind == first.kind and not other.stopped
    return other.source != first.source and not alike


def merge(observations: Iterable[Observation]) -> list[Observation]:
    """Merges observations of the same end into one for each rank or pod.

    A rank's end is reported when it happens, and again with its error once the pod has found the error. The end of a
    pod is dropped if one of its ranks is known to have failed.
    """
    by_source: dict[tuple[str, str], Observation] = {}
    for new in sorted(observations, key=lambda o: o.at):
        old = by_source.get(key := (new.pod, new.source))
        by_source[key] = new if old is None else _combine(old, new)
    ranks = [o for o in by_source.values() if o.rank is not None]
    failed, seen = {o.pod for o in ranks if not o.stopped}, {o.pod for o in ranks}
    return [
        o
        for o in by_source.values()
        if o.rank is not None or o.kind is not None or not o.pod or o.pod not in (seen if o.stopped else failed)
    ]


def _combine(old: Observation, new: Observation) -> Observation:
    if old.stopped != new.stopped:
        return new if old.stopped else old  # the observation that it was stopped adds nothing
    known = old.exit_code is not None or old.signal is not None
    return replace(
        old,
        exit_code=old.exit_code if known else new.exit_code,
        signal=old.signal if known else new.signal,
        error=old.error or new.error,
        kind=old.kind or new.kind,
        tail=new.tail or old.tail,
        out_of_memory=old.out_of_memory if old.out_of_memory is not None else new.out_of_memory,
        how=old.how or new.how,
    )


def _of_the_run(o: Observation) -> bool:
    """Whether the run as a whole failed (deadline, cancellation, disk full), which explains all later ends."""
    return not o.source


def may_be_aftermath(o: Observation) -> bool:
    """Whether another end may have caused this one: its launcher stopped it, or it reports a lost peer."""
    if o.kind is not None or not o.source:
        return False
    if _signal_of(o) in (signals.SIGTERM, signals.SIGINT):
        return True
    return (
        bool(re.search(_LOST_PEER, error_of(o)[:_SEARCHED], re.IGNORECASE))
        and kind_of(o) is not FailureKind.OUT_OF_MEMORY
    )


def explains_others(o: Observation) -> bool:
    """Whether a rank's end is an error of its own that explains later ends of other ranks.

    Returns False if a signal from outside ended the rank, such as the SIGKILL of an out-of-memory killer: the output of
    the launcher may contain the only explanation.
    """
    by_signal = _signal_of(o) in (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
    return o.kind is None and not by_signal and bool(error_of(o)) and not may_be_aftermath(o)


def kind_of(o: Observation) -> FailureKind:
    """The kind of a failure: from the observation, the exit code or signal, and the output."""
    if o.kind is not None:
        return o.kind
    if o.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if _signal_of(o) == signals.SIGKILL:
        # Earlier output does not explain a SIGKILL. Unless `out_of_memory` is False, the kernel's out-of-memory killer
        # most likely sent it.
        return FailureKind.OUT_OF_MEMORY if o.out_of_memory is None else FailureKind.INFRASTRUCTURE
    if _signal_of(o) in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
        return FailureKind.INFRASTRUCTURE
    return _kind_in(error_of(o)) or FailureKind.USER_ERROR


def _signal_of(o: Observation) -> int | None:
    """The signal that ended it, also where a shell or a container runtime reports it as 128 + n."""
    if o.signal is not None or o.exit_code is None or not 128 < o.exit_code < 128 + signals.NSIG:
        return o.signal
    return o.exit_code - 128


def _kind_in(text: str) -> FailureKind | None:
    """The kind that a text indicates. The patterns are compiled on first use: most runs succeed."""
    text = text[:_SEARCHED]
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, text, re.IGNORECASE)), None)


def error_of(o: Observation) -> str:
    """The reported error, else the one in the last lines."""
    return without_rank_mark(o.source, o.error) or find_error([without_rank_mark(o.source, line) for line in o.tail])


def find_error(lines: Sequence[str]) -> str:
    """Returns the line that names the last error in some output; empty if there is none.

    >>> find_error(["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "ValueError: bad"])
    'ValueError: bad'
    """
    named = next((line for line in reversed(lines) if re.match(_ERROR_LINE, line[:_SEARCHED])), "")
    return named or next((line for line in reversed(lines) if _kind_in(line)), "")


def _message(o: Observation, kind: FailureKind) -> str:
    """Describes what happened in one sentence."""
    if not o.source:
        return o.error
    # The loopback addresses of local nodes are not useful to the user.
    node = f" on {o.node}" if o.node and not o.node.startswith("127.") else ""
    subject = o.source + (f" (pod {o.pod}{node})" if o.pod and o.pod != o.source else node)
    error = error_of(o).strip()
    number = _signal_of(o)
    if o.how:
        how = o.how
    elif o.signal is not None:
        how = f"was killed by {signal_name(o.signal)}"
    elif o.exit_code:
        how = f"exited with code {o.exit_code}" + (f" ({signal_name(number)})" if number is not None else "")
    else:
        how = "failed"
    if kind is FailureKind.OUT_OF_MEMORY and not error:
        how += ", out of memory"
    elif kind is FailureKind.INFRASTRUCTURE and number is not None and not error:
        how += " from outside the run" if o.signal is not None else ", from outside the run"
    return f"{subject} {how}: {error}" if error else f"{subject} {how}."


def signal_name(number: int) -> str:
    """The name of a signal.

    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
