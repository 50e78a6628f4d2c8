"""Reads the stacks of several pods at the same time, each within a time limit."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.run_status import RankStatus, RunStatus
from stepset.watch.stacks.document import read_document
from stepset.watch.stacks.model import RankStacks, RunStacks

TIME_LIMIT = 15.0
"""The maximum number of seconds for the stacks of a pod. The agent needs about 2 s, or up to 10 s if a
debugger reads the stacks of programs that are not Python."""
MOST_AT_ONCE = 64
"""The maximum number of pods whose stacks are read at the same time."""
_SHOWN = 20
"""The maximum number of lines about pods or ranks whose stacks cannot be read."""
_RUNNING = "Running"
_UNREAD = 4
"""The maximum number of documents that wait until they are parsed. This limits the memory."""


@dataclass(frozen=True)
class PodStacks:
    """A pod whose stacks are read.

    Args:
        name: the name of the pod.
        rows: the ranks of the pod whose stacks are read.
        read: a function that returns the document of the pod's agent. It raises a StepsetError if it fails.
    """

    name: str
    rows: Sequence[RankStatus]
    read: Callable[[], bytes]


def running_ranks(
    status: RunStatus, sources: frozenset[str] | None
) -> tuple[Mapping[str, Sequence[RankStatus]], list[str]]:
    """Returns the ranks whose stacks can be read, by their pods, and a line for each other rank.

    Args:
        sources: the selected ranks, such as `rank 2`. None selects all ranks.

    Raises:
        BadInputError: no selected rank is running, or a source is not a rank.
    """
    if status.phase.final:
        raise BadInputError(f"run {status.name} is over: {status.phase.value}; only running ranks have stacks")
    if others := sorted(source for source in sources or () if not source.startswith("rank ")):
        raise BadInputError(f"{others[0]!r} is not a rank; select ranks such as 0,2 or 0-3")
    rows = [row for row in status.ranks if row.rank is not None and (sources is None or row.source in sources)]
    running = [row for row in rows if row.state == _RUNNING]
    unknown = sorted((sources or frozenset()) - {row.source for row in rows})
    problems = [f"{row.source} is not running: {row.state}" for row in rows if row.state != _RUNNING]
    problems += [f"{source} has not started yet" for source in unknown]
    if not running:
        found = problems[0] if problems else f"no rank has started yet: {status.phase.value}"
        raise BadInputError(f"run {status.name}: {found}; only running ranks have stacks")
    pods: dict[str, list[RankStatus]] = {}
    for row in running:
        pods.setdefault(row.pod, []).append(row)
    return pods, problems


def read_stacks(run: str, pods: Sequence[PodStacks], problems: Sequence[str] = ()) -> RunStacks:
    """Reads the stacks of the pods of a run. At most `MOST_AT_ONCE` pods are read at the same time.

    A pod that fails, or that does not answer within the time limit, becomes a line of `RunStacks.problems`.

    Args:
        problems: further lines.

    Raises:
        InfrastructureError: no pod has returned the stacks of a rank.
    """
    at, found, failed = time.time(), list[RankStacks](), list[str]()
    for pod, answer in _answers(pods):
        try:
            if isinstance(answer, StepsetError):
                raise answer
            found += _ranks_of(pod, read_document(answer))
        except StepsetError as error:
            failed.append(str(error))
        except ValueError as error:
            failed.append(f"pod {pod.name}: {error}")
    if not found:
        more = f"; {len(failed) - 1} more pods have failed" if len(failed) > 1 else ""
        raise InfrastructureError(f"{[*failed, *problems, 'the run has no pods'][0]}{more}")
    lines = [*problems, *failed]
    rest = [f"{len(lines) - _SHOWN} more pods or ranks without stacks"] if len(lines) > _SHOWN else []
    return RunStacks(run, at, tuple(sorted(found, key=lambda rank: rank.rank)), (*lines[:_SHOWN], *rest))


def _ranks_of(pod: PodStacks, document: Sequence[RankStacks]) -> Iterator[RankStacks]:
    """Yields the ranks of a pod. What the document contains about ranks of other pods is ignored."""
    ranks = {rank.rank: rank for rank in document}
    for row in pod.rows:
        number = row.rank
        assert number is not None
        known = ranks.get(number) or RankStacks(number, why="the agent of its pod did not find it")
        yield replace(known, pod=row.pod, node=row.node)


def _answers(pods: Sequence[PodStacks]) -> Iterator[tuple[PodStacks, bytes | StepsetError]]:
    """Yields each pod with its document, or with the error that prevents it, in the order of the answers."""
    answers: queue.Queue[tuple[int, bytes | StepsetError]] = queue.Queue(_UNREAD)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(pods)):
        waiting.put(number)

    def work() -> None:
        with suppress(queue.Empty, queue.Full):
            while True:
                number = waiting.get_nowait()
                try:
                    answer: bytes | StepsetError = pods[number].read()
                except StepsetError as error:
                    answer = error
                answers.put((number, answer), timeout=TIME_LIMIT)

    # The program can exit while a daemon thread waits for a pod.
    for _ in range(min(len(pods), MOST_AT_ONCE)):
        threading.Thread(target=work, daemon=True).start()
    until = time.monotonic() + TIME_LIMIT * math.ceil(len(pods) / MOST_AT_ONCE)
    missing = dict.fromkeys(range(len(pods)))
    while missing:
        try:
            number, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        del missing[number]
        yield pods[number], answer
    for number in missing:
        name = pods[number].name
        yield pods[number], InfrastructureError(f"pod {name}: did not return its stacks within {TIME_LIMIT:g} s")
