"""Finds ranks that wait in a single call of MPI: MPI polls, so that such a rank looks like one that computes.

The kernel copies the registers and the stack of a thread, which show the function of MPI that the program has called,
and its return address. Then the kernel counts how often the thread executes this address. If it never does while the
samples are taken, the thread has been in this call for the whole time.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.hangs.elf import PC, SP, UNREADABLE, Elf
from stepset.agent.hangs.perf import STACK, Perf

_SECONDS = 1.5  # in which the calls of all processes must be found, at the start and at the end
_TRIES, _PATIENCE = 20, 0.05  # copies of a stack until one of them can be read, and the seconds for each
_MOST_FRAMES, _MOST_MAPPINGS = 64, 4 << 20
_LIBRARY = re.compile(r".*/libp?mpi[^/]*$")
_PREFIXES = b"MPI_", b"PMPI_", b"mpi_", b"pmpi_", b"ompi_mpi_finalize"
"""In C, in Fortran, and the function of Open MPI that replaces the frame of MPI_Finalize."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \S+ +(/.*)$", re.MULTILINE)

if TYPE_CHECKING:
    Call = tuple[str, int, int]
    """The name of a function of MPI, its return address, and the stack pointer of its caller."""


class Calls:
    """The calls of MPI in which processes are.

    Args:
        pids: processes. Those that do not use MPI are left out.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._files: dict[str, Elf] = {}
        self._counters: dict[int, tuple[Call, int]] = {}
        self._found: dict[int, dict[str, str]] = {}
        self._until = time.monotonic() + _SECONDS
        for pid in pids:
            if any(_LIBRARY.match(row[3]) for row in mappings(pid)):
                try:
                    self._begin(pid)
                except ProcessLookupError:
                    pass
                except (OSError, ImportError) as error:
                    self._found[pid] = {"why": f"perf_event_open: {error}"}

    def _begin(self, pid: int) -> None:
        self._perf = Perf()
        call = self._call(pid)
        if call:
            counter = self._perf.counter(pid, call[1])
            # The call may have returned before the counter was there. Then the thread is elsewhere.
            if self._call(pid) == call:
                self._counters[pid] = call, counter
            else:
                os.close(counter)

    def _call(self, pid: int) -> Call | None:
        for number in range(_TRIES):
            until = min(self._until, time.monotonic() + _PATIENCE)
            # In a system call, few registers are known. In MPI_Finalize, Open MPI sleeps in short intervals.
            sample = (number % 2 == 0 and blocked(pid)) or self._perf.sample(pid, until)
            if sample:
                with IF_POSSIBLE, suppress(*UNREADABLE):
                    return self.call(pid, *sample)
        return None

    def end(self) -> dict[int, dict[str, str]]:
        """Returns for each process the `call` in which it has been since the start, or `why` it is unknown."""
        self._until = time.monotonic() + _SECONDS
        for pid, (call, counter) in self._counters.items():
            with IF_POSSIBLE:
                if self._call(pid) == call and not any(os.read(counter, 8)):
                    self._found[pid] = {"call": call[0]}
            os.close(counter)
        return self._found

    def call(self, pid: int, registers: dict[int, int], stack: bytes) -> Call | None:
        """Returns the call of MPI in which a thread is. Returns None if it is in no call, or in code that MPI calls.

        Args:
            pid: the process.
            registers: the registers of the thread.
            stack: the memory from its stack pointer on.

        Raises:
            UNREADABLE, OSError: the stack cannot be read.
        """
        name, inner, first, mapped = "", set(), registers[SP], mappings(pid)

        def read(address: int) -> int:
            at = address - first if address >= first else len(stack)
            return int(struct.unpack_from("<Q", stack, at)[0])

        for depth in range(_MOST_FRAMES):
            if not registers:
                break
            pc = registers[PC]
            start, offset, path = next((row[0], *row[2:]) for row in mapped if row[0] <= pc < row[1])
            if not _LIBRARY.match(path) and name:
                return None if path in inner else (name, pc, registers[SP])
            inner.add(path)
            if path not in self._files:
                self._files[path] = Elf(f"/proc/{pid}/root{path}")
            file = self._files[path]
            # A return address may belong to the next function.
            at = file.address(pc - start + offset) - bool(depth)
            if _LIBRARY.match(path):
                name = canonical(file.function(at, _PREFIXES)) or name
            registers = file.caller(at, registers, read)
        return None


def blocked(pid: int) -> tuple[dict[int, int], bytes] | None:
    """Returns what `Perf.sample` returns, for a process that waits in a system call. Returns None for any other."""
    with IF_POSSIBLE, open(f"/proc/{pid}/syscall", "rb") as call, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        words = call.read().split()
        if len(words) > 1:
            stack, pc = (int(word, 16) for word in words[-2:])
            return {SP: stack, PC: pc}, os.pread(memory.fileno(), STACK, stack)
    return None


def mappings(pid: int) -> list[tuple[int, int, int, str]]:
    """Returns the start, the end, the offset and the path of each file that a process has mapped as code."""
    with IF_POSSIBLE, open(f"/proc/{pid}/maps", "rb") as file:
        rows = _MAPPING.findall(file.read(_MOST_MAPPINGS).decode("utf-8", "replace"))
        return [(int(row[0], 16), int(row[1], 16), int(row[2], 16), row[3]) for row in rows]
    return []


def canonical(name: str) -> str:
    """Returns the name of a function of MPI in C.

    >>> canonical("PMPI_Recv"), canonical("mpi_allreduce_"), canonical("MPI_File_write_all"), canonical("")
    ('MPI_Recv', 'MPI_Allreduce', 'MPI_File_write_all', '')
    """
    return name and "MPI_" + name.rstrip("_").lower().rpartition("mpi_")[2].capitalize()
