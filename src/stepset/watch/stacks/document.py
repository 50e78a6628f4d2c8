"""Reads the JSON document that `agent.py stacks` prints in a pod. Contains only pure functions.

A rank can change what its agent prints. Therefore every type and every size is checked. Values of a wrong type are
replaced by empty values, and what exceeds a limit is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from stepset.watch.bounded_json import finite, parse_json
from stepset.watch.stacks.model import RANK, RankStacks, StackCollective, StackFrame, StackProcess, StackThread

MAX_BYTES = 8 << 20
"""The maximum size of the document of one pod."""
_RANKS, _PROCESSES, _THREADS, _FRAMES, _COLLECTIVES, _TENSORS, _DIMENSIONS = 1024, 256, 100, 64, 64, 16, 8
"""The maximum numbers of ranks in a document, of processes and of collectives of a rank, of threads of a process, of
frames of a thread, of tensors of a collective, and of dimensions of a tensor."""
_ALL_FRAMES = 100_000
"""The maximum number of frames in a document."""
_NAME, _PATH = 200, 1000
"""The maximum numbers of characters of a name, and of a path or a reason."""
_LARGEST = 2**63
_KINDS = frozenset({"rank", "worker", "launcher", "child"})
_T = TypeVar("_T")


def read_document(data: bytes) -> tuple[RankStacks, ...]:
    """Returns the ranks of a document, in ascending order. If a rank occurs twice, its first entry is used.

    Raises:
        ValueError: the document is too large, is not a JSON object with the ranks of a pod, or states why it contains
            no ranks.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"its stacks have more than {MAX_BYTES >> 20} MiB")
    found = parse_json(data)
    if not isinstance(found, dict) or not isinstance(found.get("ranks"), list):
        raise ValueError("its agent printed no stacks")
    if why := _text(found, "why", _PATH):
        raise ValueError(why)
    left = _FramesLeft()
    ranks: dict[int, RankStacks] = {}
    for each in _rows(found, "ranks", _RANKS):
        if (rank := _number(each, "rank", -1)) >= 0 and rank not in ranks:
            ranks[rank] = _rank(rank, each, left)
    return tuple(ranks[rank] for rank in sorted(ranks))


class _FramesLeft:
    """Counts the frames that a document may still contain."""

    def __init__(self) -> None:
        self._count = _ALL_FRAMES

    def take(self, frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
        """Returns as many of the frames as the document may still contain."""
        kept = frames[: self._count]
        self._count -= len(kept)
        return kept


def _rank(rank: int, data: Mapping[str, Any], left: _FramesLeft) -> RankStacks:
    processes = tuple(_process(each, left) for each in _rows(data, "processes", _PROCESSES))
    return RankStacks(
        rank,
        # The process of the rank itself comes first.
        processes=tuple(sorted(processes, key=lambda process: process.kind != RANK)),
        collectives=tuple(_collective(each) for each in _rows(data, "collectives", _COLLECTIVES)),
        why=_text(data, "why", _PATH) or ("" if processes else "its agent found no process"),
    )


def _process(data: Mapping[str, Any], left: _FramesLeft) -> StackProcess:
    kind = _text(data, "kind")
    return StackProcess(
        pid=_number(data, "pid"),
        kind=kind if kind in _KINDS else "child",
        name=_text(data, "name"),
        state=_text(data, "state", 1),
        wchan=_text(data, "wchan"),
        busy=data.get("busy") is True,
        gil=data.get("gil") is True,
        threads=tuple(
            StackThread(_text(each, "name"), left.take(_frames(each))) for each in _rows(data, "threads", _THREADS)
        ),
        why=_text(data, "why", _PATH),
    )


def _frames(thread: Mapping[str, Any]) -> tuple[StackFrame, ...]:
    return _several(thread, "frames", _FRAMES, _frame)


def _frame(data: Any) -> StackFrame | None:
    if not isinstance(data, list) or len(data) != 3:
        return None
    function, file, line = data
    if not isinstance(function, str) or not isinstance(file, str):
        return None
    return StackFrame(function[:_NAME], file[:_PATH], _whole(line))


def _collective(data: Mapping[str, Any]) -> StackCollective:
    return StackCollective(
        group=_text(data, "group"),
        description=_text(data, "desc"),
        backend=_text(data, "backend"),
        seq=_number(data, "seq"),
        name=_text(data, "name"),
        sizes=_several(data, "sizes", _TENSORS, _size),
        dtype=_text(data, "dtype"),
        state=_text(data, "state"),
        age=max(0.0, float(finite(data.get("age")) or 0.0)),
        done=_number(data, "done"),
        last=_text(data, "last"),
    )


def _size(data: Any) -> tuple[int, ...] | None:
    return tuple(_whole(each) for each in data[:_DIMENSIONS]) if isinstance(data, list) else None


def _several(data: Mapping[str, Any], key: str, limit: int, read: Callable[[Any], _T | None]) -> tuple[_T, ...]:
    value = data.get(key)
    found = map(read, value[:limit]) if isinstance(value, list) else ()
    return tuple(each for each in found if each is not None)


def _rows(data: Mapping[str, Any], key: str, limit: int) -> Iterator[Mapping[str, Any]]:
    value = data.get(key)
    return (each for each in value[:limit] if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _text(data: Mapping[str, Any], key: str, limit: int = _NAME) -> str:
    value = data.get(key)
    return value[:limit] if isinstance(value, str) else ""


def _number(data: Mapping[str, Any], key: str, default: int = 0) -> int:
    return _whole(data.get(key), default)


def _whole(value: Any, default: int = 0) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST
    return value if whole else default
