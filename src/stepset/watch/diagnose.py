"""From the observed ends of a run to one Failure: who failed first, why, and what to do.

The local backend observes processes, the Kubernetes backend pods; both get the same answer.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.watch.state import Failure, FailureKind

TAIL = 20
"""Last lines that a Failure shows."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One unsuccessful end, as a backend observed it."""

    source: str  # as in LogLine: rank 3, node 0, launcher, prepare-0; empty for the run as a whole
    at: float  # seconds since the epoch
    rank: int | None = None
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""  # the first real error, if one was found
    kind: FailureKind | None = None  # if the observer knows: by the agent's checks or a pod's condition
    tail: tuple[str, ...] = ()  # the last lines
    stopped: bool = False  # on purpose, because something else had failed or the run was over
    out_of_memory: bool | None = None  # whether an out-of-memory killer ended it; None if unknown
    how: str = ""  # what happened, such as `was evicted`; default: by exit code and signal


ADVICE = {
    FailureKind.USER_ERROR: "Look at the error and at the last lines of that rank; the training code must be mended.",
    FailureKind.OUT_OF_MEMORY: (
        "Give each node more memory, or need less: a smaller batch, fewer processes per node, a sharded model."
    ),
    FailureKind.IMAGE_PULL: "Check the image's name and tag, and that the cluster may pull it.",
    FailureKind.UNSCHEDULABLE: "Ask for less per node, wait for capacity, or loosen the scheduling constraints.",
    FailureKind.RENDEZVOUS: (
        "Check that all ranks start, agree on the world size, and can reach the master's address and port;"
        " then run again."
    ),
    FailureKind.INFRASTRUCTURE: "The training code is not to blame; mend what is named here and run again.",
    FailureKind.DEADLINE_EXCEEDED: "Give the job a longer deadline, or less to do.",
    FailureKind.REJECTED: (
        "Change the job, or give the cluster what it lacks, as the message says; before that another run cannot help."
    ),
    FailureKind.LOST: "Look for what ended it, and run again; a checkpoint_dir lets the training go on where it was.",
    FailureKind.CANCELLED: "Run it again when it is wanted.",
}

START_ADVICE = "Check the command, and that the image has its program on PATH, executable."


def make_failure(kind: FailureKind, message: str, **known: Any) -> Failure:
    """A failure with the advice for its kind."""
    return Failure(kind, message, ADVICE[kind], **known)


# Text of an error -> kind. The first match counts; everything else is a user error.
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

# Errors of a rank that has lost a peer: not the cause.
_PEER_GONE = (
    r"connection (closed|reset|refused|was aborted)( by peer)?|broken pipe|peer (closed|disconnected|is gone)"
    r"|connection was likely closed|remote process exited|ncclRemoteError|NCCL communicator was aborted"
    r"|RendezvousClosedError|RendezvousConnectionError|SignalException|SystemExit: 143|lost connection"
)
_ERROR_LINE = r"[A-Za-z_][\w.]*?([Ee]rror|Exception|Interrupt|Exit|Fault)\b(?::|$)"


def diagnose(observations: Iterable[Observation], *, restarts: int = 0, events: Sequence[str] = ()) -> Failure | None:
    """The failure behind observations of all unsuccessful ends, in any order; None if nothing failed.

    The earliest end counts. A pod that was stopped on purpose is never the cause, and a rank that only lost its peer
    only if nothing else can be. `restarts` and `events` become part of the result.
    """
    every = merge(observations)
    candidates = [o for o in every if not o.stopped]
    if not candidates:
        return None
    first = min(candidates, key=lambda o: (not _of_the_run(o), looks_like_aftermath(o), o.at, o.rank is None))
    kind = kind_of(first)
    # Codes of shells and of the agent for a missing program are not the training code's own.
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
        tail=first.tail[-TAIL:],
        events=tuple(events),
        restarts=restarts,
        aftermath=tuple(dict.fromkeys(o.source for o in every if o.source and _hit_by(first, o))),
    )


def _hit_by(first: Observation, o: Observation) -> bool:
    """Whether another end caused this one; not if both are known to have had the same cause."""
    alike = o.kind is not None and o.kind == first.kind and not o.stopped
    return o.source != first.source and not alike


def merge(observations: Iterable[Observation]) -> list[Observation]:
    """One observation for each rank or pod that ended, from several of the same end.

    A rank's end is reported when it happens, and again with the error when its pod has found it. A pod's own end adds
    nothing where one of its ranks is known to have failed.
    """
    by_who: dict[tuple[str, str], Observation] = {}
    for new in sorted(observations, key=lambda o: o.at):
        old = by_who.get(key := (new.pod, new.source))
        by_who[key] = new if old is None else _both(old, new)
    ranks = [o for o in by_who.values() if o.rank is not None]
    failed, seen = {o.pod for o in ranks if not o.stopped}, {o.pod for o in ranks}
    return [
        o
        for o in by_who.values()
        if o.rank is not None or o.kind is not None or not o.pod or o.pod not in (seen if o.stopped else failed)
    ]


def _both(old: Observation, new: Observation) -> Observation:
    if old.stopped != new.stopped:
        return new if old.stopped else old  # being stopped as well, later or elsewhere, adds nothing
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
    """A verdict on the run as a whole (deadline, cancellation, disk full) explains everything that follows."""
    return not o.source


def looks_like_aftermath(o: Observation) -> bool:
    """Whether another end may have caused this one: its launcher stopped it, or its error is a lost peer."""
    if o.kind is not None or not o.source:
        return False
    if _signal_of(o) in (signals.SIGTERM, signals.SIGINT):
        return True
    return bool(re.search(_PEER_GONE, error_of(o), re.IGNORECASE)) and kind_of(o) is not FailureKind.OUT_OF_MEMORY


def kind_of(o: Observation) -> FailureKind:
    """The kind of a failure: by the observer's hints, the exit code or signal, and the output."""
    if o.kind is not None:
        return o.kind
    if o.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if _signal_of(o) == signals.SIGKILL:
        # Earlier output does not explain this. The out-of-memory killer is by far the likeliest sender, unless the
        # observer knows better.
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
    """The kind that a text indicates. Patterns are compiled when first needed: most runs succeed."""
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, text, re.IGNORECASE)), None)


def error_of(o: Observation) -> str:
    """The reported error, else the one in the last lines."""
    return o.error or find_error(o.tail)


def find_error(lines: Sequence[str]) -> str:
    """The line that names the last error in some output, or "".

    >>> find_error(["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "ValueError: bad"])
    'ValueError: bad'
    """
    named = next((line for line in reversed(lines) if re.match(_ERROR_LINE, line)), "")
    return named or next((line for line in reversed(lines) if _kind_in(line)), "")


def _message(o: Observation, kind: FailureKind) -> str:
    """What happened, in one sentence."""
    if not o.source:
        return o.error
    # A loopback address, as of nodes on one machine, is no information.
    node = f" on {o.node}" if o.node and not o.node.startswith("127.") else ""
    who = o.source + (f" (pod {o.pod}{node})" if o.pod and o.pod != o.source else node)
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
    return f"{who} {how}: {error}" if error else f"{who} {how}."


def signal_name(number: int) -> str:
    """The name of a signal.

    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
