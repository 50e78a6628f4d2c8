"""Diagnoses a failed run from its observed failures: what failed first, why it failed, and what to do.

The local backend observes processes, and the Kubernetes backend observes pods. The rules are the same for both.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepset.hang import HANG_CODES
from stepset.run_status import Failure, FailureKind
from stepset.watch.advice import (
    ADVICE,
    LOCAL_SIGNAL_ADVICE,
    LOCAL_STOP_ADVICE,
    MEMORY_LIMIT_ADVICE,
    NO_OUTPUT_ADVICE,
    RESULT_ADVICE,
    SIGNAL_ADVICE,
    START_ADVICE,
    advice_for_error,
    early_exit_advice,
)
from stepset.watch.crash import FATAL, with_first_frame, without_extensions
from stepset.watch.lines import without_rank_mark
from stepset.watch.present.process_end import ProcessEnd, end_of_process, signal_of_exit_code
from stepset.watch.tracebacks import after_tracebacks, final_exception, user_frame, without_ignored, without_markers

TAIL = 20
"""The maximum number of last lines in a `Failure`."""
KEPT_LINES = 3 * TAIL
"""The number of last lines of each source that are kept. A traceback can be longer than the last lines in a failure.
Errors are searched only in the last `TAIL` lines. Frames are searched in all of these lines."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A failure or an exit, observed by a backend. It usually concerns one rank or one pod."""

    source: str  # the source as in LogLine, such as `rank 3`, `node 0` or `launcher`; empty for the run as a whole
    at: float  # seconds since the epoch
    rank: int | None = None
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""  # the first error that is not only a consequence of another failure
    searched: bool = False  # whether the agent has searched the output for the error, with `error` as the result
    kind: FailureKind | None = None  # set if it is known from the agent's checks or from a condition of the pod
    tail: tuple[str, ...] = ()  # the last lines
    stopped: bool = False  # whether the rank or pod was stopped on purpose, after a failure or the end of the run
    succeeded: bool = False  # whether the rank or pod has exited with code 0, and so is not a failure
    out_of_memory: bool | None = None  # whether an out-of-memory killer killed the process; None if unknown
    memory_limit: str = ""  # the memory limit of the node's container, such as 16Gi; empty if unknown
    advice: str = ""  # the advice, if it is more specific than the advice for the kind
    how: str = ""  # what happened, such as `was evicted`. If it is empty, the exit code and the signal are used. For a
    # failure of the run as a whole, this is the message. If it is then empty, the message is `error`.


# Patterns for each kind of failure. The first pattern that matches the text of an error determines the kind. If none
# matches, the error is a user error.
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

# Errors of a rank that has lost its connection to a peer. Such a rank is not the cause of a failure.
_LOST_PEER = (
    r"connection (closed|reset|refused|was aborted)( by peer)?|broken pipe|peer (closed|disconnected|is gone)"
    r"|connection was likely closed|remote process exited|ncclRemoteError|NCCL communicator was aborted"
    r"|RendezvousClosedError|RendezvousConnectionError|SignalException|SystemExit: 143|lost connection"
)
_NO_PEER = _LOST_PEER + r"|Timed out waiting \d+ms for|collective operation timeout"
"""Errors of a rank that has lost its connection to a peer, or that has waited for a peer until a timeout."""
_SEARCHED = 4096
"""The number of characters of an error that are searched. Training code chooses the text, and some patterns take
quadratic time."""
_TOGETHER = 1.0
"""If a rank loses its peer at the exit of the peer, the two exits can be observed in any order in this many seconds."""
_LAST_LINE = 200
"""The maximum number of characters of the last line in a message."""
_LOGGED_ERROR = r"\b(ERROR|CRITICAL|FATAL)\b"
"""The levels of a log line that reports an error."""
_ERROR_LINE = r"[A-Za-z_][\w.]*?([Ee]rror|Exception|Interrupt|Exit|Fault|BdbQuit)\b(?::|$)"


def diagnose(
    observations: Iterable[Observation], *, restarts: int = 0, events: Sequence[str] = (), local: bool = False
) -> Failure | None:
    """Returns the failure that explains all observations. Returns None if nothing failed.

    The earliest failure is the cause. A pod that was stopped on purpose is never the cause. A rank that only lost its
    peer is the cause only if there is no other candidate.

    Args:
        observations: the observed failures, in any order.
        restarts, events: these values are copied to the fields `restarts` and `events` of the result.
        local: whether the processes ran on this machine.
    """
    every = merge(observations)
    candidates = [o for o in every if not o.stopped and not o.succeeded]
    if not candidates:
        return None
    first = min(candidates, key=lambda o: (not _of_the_run(o), may_be_aftermath(o), o.at, o.rank is None))
    kind, error = kind_of(first), error_of(first)
    peer = _exited_peer(first, every)
    tail = without_extensions([without_rank_mark(first.source, line) for line in first.tail])
    failed = [o for o in every if o.source and not o.succeeded]
    same = [o for o in failed if o.source != first.source and _failed_with(error, o)]
    if kind is FailureKind.CANCELLED:
        failed = []  # every rank was stopped
    same_ids = {id(o) for o in same}  # comparing the observations of all ranks with each other would take too long
    return Failure(
        kind=kind,
        message=_message(first, kind, peer),
        advice=early_exit_advice(peer.source) if peer is not None else _advice(first, kind, local=local),
        rank=first.rank,
        pod=first.pod,
        node=first.node,
        exit_code=first.exit_code,
        signal=first.signal,
        error=with_first_frame(error, tail),
        frame=user_frame(error, tail),
        tail=without_markers(tail[-TAIL:]),
        events=tuple(events),
        restarts=restarts,
        aftermath=_sources(o for o in failed if id(o) not in same_ids and _may_have_caused(first, o)),
        same_error=_sources(same),
        early_exit=None if peer is None else peer.rank,
    )


def _failed_with(error: str, o: Observation) -> bool:
    """Returns whether a process has failed with this error, even if it was also asked to stop.

    Some errors occur in all ranks, for example a SyntaxError. The ranks fail at nearly the same time.
    """
    lines = _last_lines(o)
    printed = bool(error) and (error_of(o) == error or error in lines)
    # A rank that was stopped while it waited may have logged the error before. It prints a last traceback at its exit.
    return printed and ((bool(o.exit_code) and _signal_of(o) is None) or final_exception(lines) == error)


def _advice(o: Observation, kind: FailureKind, *, local: bool) -> str:
    if o.advice:
        return o.advice
    # Shells and the agent use these exit codes for a program that is missing or not executable.
    if kind is FailureKind.USER_ERROR and o.exit_code in (126, 127):
        return START_ADVICE
    error = error_of(o)[:_SEARCHED]
    if kind in (FailureKind.USER_ERROR, FailureKind.OUT_OF_MEMORY) and (advice := advice_for_error(error)):
        return advice
    if kind is FailureKind.REJECTED and error.startswith("the program succeeded, "):  # agent/events.py
        return RESULT_ADVICE
    silent = not error and not any(o.tail[-TAIL:])
    if kind is FailureKind.USER_ERROR and o.exit_code and _signal_of(o) is None and silent:
        return NO_OUTPUT_ADVICE
    if kind is FailureKind.OUT_OF_MEMORY and o.memory_limit:
        return MEMORY_LIMIT_ADVICE
    if _by_signal(o, kind):
        # The kernel kills processes with SIGKILL if the memory is full.
        of_this_machine = LOCAL_SIGNAL_ADVICE if _signal_of(o) == signals.SIGKILL else LOCAL_STOP_ADVICE
        return of_this_machine if local else SIGNAL_ADVICE
    return ADVICE[kind]


def _by_signal(o: Observation, kind: FailureKind) -> bool:
    """Returns whether a signal has terminated a process and nothing else indicates the cause."""
    return kind is FailureKind.INFRASTRUCTURE and not o.how and _signal_of(o) is not None and not error_of(o)


def _sources(observations: Iterable[Observation]) -> tuple[str, ...]:
    """Returns each source once. Ranks come first, sorted by number. Then come pods, sorted by name and number."""

    def key(o: Observation) -> tuple[bool, int, str, int]:
        name, _, number = o.source.replace("-", " ").rpartition(" ")
        index = int(number) if number.isdecimal() else -1
        return o.rank is None, o.rank or 0, name if index >= 0 else o.source, index

    return tuple(dict.fromkeys(o.source for o in sorted(observations, key=key)))


def _exited_peer(first: Observation, every: Iterable[Observation]) -> Observation | None:
    """Returns the rank that had exited with code 0 first, before `first` lost its peer.

    Returns None if `first` has another error, or if no rank had exited.
    """
    lost = first.source and first.kind is None and re.search(_NO_PEER, error_of(first)[:_SEARCHED], re.IGNORECASE)
    exited = [o for o in every if o.succeeded and o.rank is not None and o.at < first.at + _TOGETHER] if lost else []
    return min(exited, key=lambda o: o.at, default=None)


def _may_have_caused(first: Observation, other: Observation) -> bool:
    """Returns whether `first` may have caused `other`. Returns False if both are known to be of the same kind.

    Also returns False for the rank that a failure of the run as a whole, such as an exceeded deadline, names.
    """
    alike = other.kind is not None and other.kind == first.kind and not other.stopped
    same = other.source == first.source or (other.rank is not None and other.rank == first.rank)
    return not same and not alike


def merge(observations: Iterable[Observation]) -> list[Observation]:
    """Merges the observations of the same failure into one observation for each rank or pod.

    The exit of a rank is reported when the rank exits. When the error of the rank has been found, the exit is reported
    again, together with the error. The failure of a pod is dropped if one of its ranks is known to have failed. The
    stop of a pod is dropped if one of its ranks is known to have failed or to have been stopped.
    """
    by_source: dict[tuple[str, str], Observation] = {}
    for new in sorted(observations, key=lambda o: o.at):
        old = by_source.get(key := (new.pod, new.source))
        by_source[key] = new if old is None else _combine(old, new)
    ranks = [o for o in by_source.values() if o.rank is not None]
    seen = {o.pod for o in ranks if not o.succeeded}
    failed = {o.pod for o in ranks if not o.stopped and not o.succeeded}
    return [
        o
        for o in by_source.values()
        if o.rank is not None or o.kind is not None or not o.pod or o.pod not in (seen if o.stopped else failed)
    ]


def _combine(old: Observation, new: Observation) -> Observation:
    if old.succeeded != new.succeeded:
        return new if old.succeeded else old  # the launcher restarted a rank after its exit
    if old.stopped != new.stopped:
        return new if old.stopped else old  # an observation of a stop contains no error
    known = old.exit_code is not None or old.signal is not None
    return replace(
        old,
        exit_code=old.exit_code if known else new.exit_code,
        signal=old.signal if known else new.signal,
        error=old.error or new.error,
        searched=old.searched or new.searched,
        kind=old.kind or new.kind,
        tail=_later_tail(old.tail, new.tail),
        out_of_memory=old.out_of_memory if old.out_of_memory is not None else new.out_of_memory,
        memory_limit=old.memory_limit or new.memory_limit,
        how=old.how or new.how,
    )


def _later_tail(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the later one of two tails of the same process.

    A pod's termination message contains fewer lines than its log. Therefore the longer tail is returned if it also
    contains the last line of the shorter tail.
    """
    shorter, longer = sorted((old, new), key=len)
    return longer if shorter and shorter[-1] in longer else new or old


def _of_the_run(o: Observation) -> bool:
    """Returns whether the run as a whole failed. Such a failure explains all later failures.

    Examples are an exceeded deadline, a cancellation and a full disk.
    """
    return not o.source


def may_be_aftermath(o: Observation) -> bool:
    """Returns whether another failure may have caused this failure.

    This is possible if the launcher stopped the rank, or if the rank reports a lost peer.
    """
    if o.kind is not None or not o.source:
        return False
    return _signal_of(o) in (signals.SIGTERM, signals.SIGINT) or has_lost_peer(o)


def has_lost_peer(o: Observation) -> bool:
    """Returns whether the error of a process only states that the process has lost a peer."""
    lost = o.kind is None and re.search(_LOST_PEER, error_of(o)[:_SEARCHED], re.IGNORECASE)
    return bool(lost) and kind_of(o) is not FailureKind.OUT_OF_MEMORY


def kind_of(o: Observation) -> FailureKind:
    """Returns the observed kind of a failure, or the kind that the exit code, the signal and the output indicate."""
    if o.kind is not None:
        return o.kind
    if o.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if _signal_of(o) == signals.SIGKILL:
        # The output does not explain a SIGKILL. Unless `out_of_memory` is False, the kernel's out-of-memory killer most
        # likely sent the signal.
        return FailureKind.OUT_OF_MEMORY if o.out_of_memory is None else FailureKind.INFRASTRUCTURE
    if _signal_of(o) in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
        return FailureKind.INFRASTRUCTURE
    return _kind_in(error_of(o)) or FailureKind.USER_ERROR


def _signal_of(o: Observation) -> int | None:
    """Returns the number of the signal that terminated a process."""
    return o.signal if o.signal is not None or o.exit_code is None else signal_of_exit_code(o.exit_code)


def _kind_in(text: str) -> FailureKind | None:
    """Returns the kind that a text indicates. The patterns are compiled on first use, because most runs succeed."""
    text = text[:_SEARCHED]
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, text, re.IGNORECASE)), None)


def error_of(o: Observation) -> str:
    """Returns the reported error. If no error was reported, returns the error in the last lines.

    The agent does not report the exception of a traceback that the process has handled. Such an exception in the last
    lines is no error either.
    """
    lines = _last_lines(o)
    return without_rank_mark(o.source, o.error) or find_error(after_tracebacks(lines) if o.searched else lines)


def _last_lines(o: Observation) -> list[str]:
    """Returns the lines in which errors are searched."""
    return without_ignored([without_rank_mark(o.source, line) for line in o.tail[-TAIL:]])


def find_error(lines: Sequence[str]) -> str:
    """Returns the line with the last error in some output, or "" if there is no error.

    >>> find_error(["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "ValueError: bad"])
    'ValueError: bad'
    >>> find_error(["epoch 1", "2026-11-27 06:27:19 ERROR train: shard 17 is bad", "bye"])
    '2026-11-27 06:27:19 ERROR train: shard 17 is bad'
    >>> find_error(["Fatal Python error: Aborted", "", '  File "t.py", line 3 in step'])
    'Fatal Python error: Aborted'
    """
    named = next((line for line in reversed(lines) if re.match(_ERROR_LINE, line[:_SEARCHED])), "")
    named = named or next((line for line in reversed(lines) if _kind_in(line)), "")
    named = named or next((line for line in reversed(lines) if re.search(_LOGGED_ERROR, _without_paths(line))), "")
    return named or next((line for line in reversed(lines) if line.startswith(FATAL)), "")


def _without_paths(line: str) -> str:
    """Removes paths, because the words of a path such as `/data/ERROR/1.log` do not report an error."""
    return " ".join(word for word in line[:_SEARCHED].split() if "/" not in word)


def _message(o: Observation, kind: FailureKind, peer: Observation | None) -> str:
    """Returns one sentence that describes what happened. `peer` is a rank that had exited before."""
    if not o.source:
        return o.how or o.error
    error, number, out_of_memory = error_of(o).strip(), _signal_of(o), kind is FailureKind.OUT_OF_MEMORY
    # For `SystemExit("text")`, Python prints the text as the last line, and exits with code 1.
    words = (line.strip() for line in reversed(_last_lines(o)) if any(map(str.isalnum, line)))
    last = next(words, "")[:_LAST_LINE] if o.exit_code and number is None else ""
    certain = o.out_of_memory or o.kind is not None
    return end_of_process(
        ProcessEnd(
            source=o.source,
            pod=o.pod,
            node=o.node,
            how=o.how,
            by_hang=o.kind is not None and o.exit_code in HANG_CODES,
            rejected=o.kind is FailureKind.REJECTED,
            exit_code=o.exit_code,
            signal=o.signal,
            out_of_memory=("certain" if certain else "likely") if out_of_memory and not error else "",
            memory_limit=o.memory_limit,
            unknown_sender=_by_signal(o, kind),
            peer="" if peer is None else peer.source,
            after=0.0 if peer is None else o.at - peer.at,
            error=error,
            last_line="" if error else last,
        )
    )
