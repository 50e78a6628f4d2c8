"""Reads what an agent reports about ranks: the JSON document of `agent.py stacks`, and the ranks of its events.

A rank can change what its agent prints. Therefore every type and every size is checked. Values of a wrong type are
replaced by empty values, and what exceeds a limit is left out. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepset.hang import StackFrame
from stepset.unstructured import rows, text
from stepset.watch.bounded_json import finite, parse_json
from stepset.watch.stacks.model import RANK, RankStacks, StackCollective, StackProcess, StackThread

MAX_BYTES = 8 << 20
"""The maximum size of the document of one pod."""
_RANKS, _THREADS, _FRAMES, _COLLECTIVES, _MEMBERS, _TENSORS, _DIMENSIONS = 1024, 100, 64, 64, 1024, 16, 8
"""The maximum numbers of ranks in a document, of threads of a process, of frames of a thread, of collectives of a rank,
of members of a group, of tensors of a collective, and of dimensions of a tensor."""
_FILES = 20
"""The maximum number of open files of a process."""
_LARGEST = 2**53
_KINDS = frozenset({"rank", "worker", "launcher", "child"})


class RankReader:
    """Reads ranks with limits that apply to all of them together.

    Args:
        frames: the maximum number of frames of all ranks.
        processes: the maximum number of processes of a rank.
        name: the maximum number of characters of a name.
        path: the maximum number of characters of the end of a path, and of a reason.
    """

    def __init__(self, frames: int = 100_000, processes: int = 256, name: int = 200, path: int = 1000) -> None:
        self._frames_left = frames
        self._processes = processes
        self._name = name
        self._path = path

    def rank(self, rank: int, data: Mapping[str, Any]) -> RankStacks:
        """Returns the processes and the collectives of a rank."""
        return RankStacks(
            rank,
            processes=tuple(self._process(each) for each in rows(data, "processes")[: self._processes]),
            collectives=tuple(self._collective(each) for each in rows(data, "collectives")[:_COLLECTIVES]),
            why=self.why(data),
        )

    def why(self, data: Mapping[str, Any]) -> str:
        """Returns why something is missing."""
        return text(data, "why")[: self._path]

    def _process(self, data: Mapping[str, Any]) -> StackProcess:
        kind = self._text(data, "kind")
        return StackProcess(
            pid=_number(data, "pid"),
            kind=kind if kind in _KINDS else "child",
            name=self._text(data, "name"),
            state=self._text(data, "state")[:1],
            wchan=self._text(data, "wchan"),
            syscall=_whole(data.get("syscall")),
            busy=data.get("busy") is True,
            changed=data.get("changed") is True,
            gil=data.get("gil") is True,
            threads=tuple(
                StackThread(self._text(each, "name"), tuple(self._frames(each)))
                for each in rows(data, "threads")[:_THREADS]
            ),
            call=self._text(data, "call"),
            waits=text(data, "waits")[: self._path],
            files=tuple(each[: self._path] for each in _items(data, "files", _FILES) if isinstance(each, str)),
            why=self.why(data),
        )

    def _frames(self, thread: Mapping[str, Any]) -> Iterator[StackFrame]:
        for frame in _items(thread, "frames", min(_FRAMES, self._frames_left)):
            if isinstance(frame, list) and len(frame) == 3 and all(isinstance(each, str) for each in frame[:2]):
                function, file, line = frame
                self._frames_left -= 1
                yield StackFrame(function[: self._name], file[-self._path :], _whole(line) or 0)

    def _collective(self, data: Mapping[str, Any]) -> StackCollective:
        return StackCollective(
            group=self._text(data, "group"),
            description=self._text(data, "desc"),
            backend=self._text(data, "backend"),
            seq=_number(data, "seq"),
            name=self._text(data, "name"),
            sizes=_sizes(data.get("sizes")),
            dtype=self._text(data, "dtype"),
            state=self._text(data, "state"),
            age=seconds(data, "age"),
            done=_number(data, "done"),
            last=self._text(data, "last"),
            queued=_number(data, "queued"),
            p2p=data.get("p2p") is True,
            ranks=tuple(rank for rank in _items(data, "ranks", _MEMBERS) if _whole(rank) is not None),
        )

    def _text(self, data: Mapping[str, Any], name: str) -> str:
        return text(data, name)[: self._name]


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
    reader = RankReader()
    if why := reader.why(found):
        raise ValueError(why)
    ranks: dict[int, RankStacks] = {}
    for each in rows(found, "ranks")[:_RANKS]:
        if (rank := _whole(each.get("rank"))) is not None and rank not in ranks:
            ranks[rank] = _of_document(reader.rank(rank, each))
    return tuple(ranks[rank] for rank in sorted(ranks))


def _of_document(found: RankStacks) -> RankStacks:
    """Returns a rank whose own process comes first, and that states why it has no process."""
    processes = sorted(found.processes, key=lambda process: process.kind != RANK)
    why = found.why or ("" if processes else "its agent found no process")
    return replace(found, processes=tuple(processes), why=why)


def seconds(data: Mapping[str, Any], name: str) -> float:
    """Returns the duration in a field, in seconds, or 0 if the field contains no duration."""
    return max(0.0, float(finite(data.get(name)) or 0.0))


def _sizes(data: Any) -> tuple[tuple[int, ...], ...]:
    """Returns the sizes of tensors. Returns an empty tuple if one is invalid, because their sum is then unknown."""
    if not isinstance(data, list) or len(data) > _TENSORS:
        return ()
    valid = all(isinstance(size, list) and len(size) <= _DIMENSIONS and None not in map(_whole, size) for size in data)
    return tuple(map(tuple, data)) if valid else ()


def _items(data: Mapping[str, Any], name: str, limit: int) -> list[Any]:
    value = data.get(name)
    return value[:limit] if isinstance(value, list) else []


def _number(data: Mapping[str, Any], name: str) -> int:
    return _whole(data.get(name)) or 0


def _whole(value: Any) -> int | None:
    """Returns a value if it is an integer that JSON can express exactly (RFC 8259, section 6), or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST else None
