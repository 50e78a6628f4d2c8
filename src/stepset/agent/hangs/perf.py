"""Observes threads of other processes with perf_event_open(2), without stopping them.

The kernel removes everything when this process closes the file or dies. Sources: perf_event_open(2); Linux
include/uapi/linux/perf_event.h, arch/x86/include/uapi/asm/perf_regs.h.
"""

from __future__ import annotations

import os
import struct
import time

from stepset.agent.hangs.elf import PC, SP

_NUMBER = 298  # of the system call on x86-64
_CPU_CLOCK, _BREAKPOINT = (1, 0), (5, 4)  # PERF_TYPE_SOFTWARE; PERF_TYPE_BREAKPOINT with HW_BREAKPOINT_X
_SAMPLE_TYPE = 1 << 12 | 1 << 13  # PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER
_ONLY_USER = 1 << 5  # exclude_kernel
_NUMBERS = {1: 3, 6: 6, 7: SP, 8: PC, 20: 12, 21: 13, 22: 14, 23: 15}
"""The numbers of rbx, rbp, rsp, rip, and r12 to r15 in perf_regs.h, and in DWARF."""
_PERIOD = 500_000  # nanoseconds of CPU time
STACK, _RING = 32 << 10, 64 << 10  # bytes
_HEAD = 1024  # of the field data_head in struct perf_event_mmap_page


class Perf:
    """Calls perf_event_open.

    Raises:
        ImportError: the machine is no x86-64, or Python was built without ctypes.
    """

    def __init__(self) -> None:
        if os.uname().machine != "x86_64":
            raise ImportError("the machine is no x86-64")
        import ctypes

        self._ctypes, self._libc = ctypes, ctypes.CDLL(None, use_errno=True)

    def _open(self, pid: int, kind: tuple[int, int], address: int, *sample: int) -> int:
        period, what, registers, stack = sample or (0, 0, 0, 0)
        attributes = struct.pack(
            *("<IIQQQQQIIQQQQI20x", kind[0], 112, 0, period, what, 0, _ONLY_USER, 0, kind[1]),
            *(address, 8 if address else 0, 0, registers, stack),
        )
        fd = int(self._libc.syscall(_NUMBER, attributes, pid, -1, -1, 8))  # PERF_FLAG_FD_CLOEXEC
        if fd < 0:
            code = self._ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return fd

    def counter(self, pid: int, address: int) -> int:
        """Returns a file that contains how often the main thread of a process has executed an address since now."""
        return self._open(pid, _BREAKPOINT, address)

    def sample(self, pid: int, until: float) -> tuple[dict[int, int], bytes] | None:
        """Returns the registers of the main thread of a process, by their numbers in DWARF, and the top of its stack.

        Returns None if the thread does not run in user mode until a time (`time.monotonic`).
        """
        from mmap import PAGESIZE, mmap

        mask = sum(1 << number for number in _NUMBERS)
        fd = self._open(pid, _CPU_CLOCK, 0, _PERIOD, _SAMPLE_TYPE, mask, STACK)
        try:
            with mmap(fd, PAGESIZE + _RING) as ring:
                while time.monotonic() < until:
                    time.sleep(0.001)
                    if any(ring[_HEAD : _HEAD + 8]):
                        registers = struct.unpack_from("<8Q", ring, PAGESIZE + 16)
                        return dict(zip(_NUMBERS.values(), registers)), ring[PAGESIZE + 88 : PAGESIZE + 88 + STACK]
        finally:
            os.close(fd)
        return None
