"""Reads the ELF files of programs and libraries of x86-64: the names of functions, and the callers of functions.

The compiler describes in .eh_frame where each function has saved the registers of its caller. Sources: elf(5); Linux
Standard Base 5.0, Core, 10.6 (.eh_frame, .eh_frame_hdr); DWARF 4, 6.4; System V ABI for AMD64, figure 3.36 (the numbers
of the registers).
"""

from __future__ import annotations

import os
import struct
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SP, PC = 7, 16  # registers
UNREADABLE = ValueError, LookupError, ArithmeticError, struct.error, StopIteration
"""The errors of files and stacks of another form."""
_X86_64, _LOAD, _EH_FRAME, _DYNSYM = 62, 1, 0x6474E550, 11
_COMMON = b"\1zR\0\1\x78\x10\1\x1b"
"""The beginning of a CIE that compilers write for C: its version, the factors 1 and -8, and the form of addresses."""
_LIMIT = 32 << 20  # bytes of a table
_ADVANCE, _OFFSET, _RESTORE = 0x40, 0x80, 0xC0  # the instructions DW_CFA_*
_UNDEFINED, _REMEMBER, _RECALL, _BASE, _BASE_REGISTER, _BASE_OFFSET = 0x07, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E


def _leb(data: BytesIO) -> int:
    """Reads an unsigned number in the format LEB128."""
    value = shift = 0
    while True:
        byte = data.read(1)[0]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value


class Elf:
    """An ELF file.

    Raises:
        OSError: the file cannot be read.
        UNREADABLE: the file has another format. All methods raise these errors, too.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        machine, segments, sections, count, of_sections = struct.unpack("<18xH12xQQ8xH2xH2x", self._bytes(0, 64))
        if machine != _X86_64:
            raise ValueError
        self._segments = [*struct.iter_unpack("<IIQQQQQQ", self._bytes(segments, 56 * count))]
        self._sections = [*struct.iter_unpack("<IIQQQQIIQQ", self._bytes(sections, 64 * of_sections))]

    def _bytes(self, offset: int, size: int) -> bytes:
        return os.pread(self._file, min(size, _LIMIT), offset)

    def address(self, value: int, old: int = 2, new: int = 3) -> int:
        """Returns the address of the byte at an offset of the file. The columns `old` and `new` of a segment differ."""
        row = next(row for row in self._segments if row[0] == _LOAD and row[old] <= value < row[old] + row[5])
        return int(value + row[new] - row[old])

    def _at(self, address: int, size: int) -> bytes:
        return self._bytes(self.address(address, 3, 2), size)

    def function(self, address: int, prefixes: tuple[bytes, ...]) -> str:
        """Returns the exported function that contains an address, or "" if its name has none of the prefixes."""
        for section in self._sections:
            if section[1] == _DYNSYM:
                names = self._bytes(*self._sections[section[6]][4:6])
                for name, start, size in struct.iter_unpack("<I4xQQ", self._bytes(*section[4:6])):
                    if start <= address < start + size and names.startswith(prefixes, name):
                        return names[name:].partition(b"\0")[0].decode()
        return ""

    def caller(self, address: int, registers: Mapping[int, int], read: Callable[[int], int]) -> dict[int, int]:
        """Returns the registers of the caller of the function that contains an address, or {} if it has no caller.

        Args:
            registers: the known registers, by their numbers.
            read: returns the word at an address of the stack.
        """
        left, *parts = self._instructions(address)
        base = offset = 0
        saved: dict[int, int] = {}
        states = []
        for part in parts:
            initial, data = dict(saved), BytesIO(part)
            while byte := data.read(1):
                kind, low = byte[0] & 0xC0, byte[0] & 0x3F
                if kind == _ADVANCE or (not kind and 2 <= low <= 4):
                    left -= low if kind else int.from_bytes(data.read(1 << (low - 2)), "little")
                    if left < 0:
                        break
                elif kind == _OFFSET:
                    saved[low] = -8 * _leb(data)
                elif kind == _RESTORE:
                    saved.pop(low, None)
                    saved.update({low: initial[low]} if low in initial else {})
                elif low == _UNDEFINED:
                    return {}
                elif low == _REMEMBER:
                    states.append((base, offset, dict(saved)))
                elif low == _RECALL:
                    base, offset, saved = states.pop()
                elif _BASE <= low <= _BASE_OFFSET:
                    base = base if low == _BASE_OFFSET else _leb(data)
                    offset = offset if low == _BASE_REGISTER else _leb(data)
                elif low:
                    raise ValueError
        start = registers[base] + offset
        return {**registers, **{register: read(start + at) for register, at in saved.items()}, SP: start}

    def _instructions(self, address: int) -> tuple[int, bytes, bytes]:
        """Returns the position of an address in its function, and the instructions that describe the function."""
        table = next(row[3] for row in self._segments if row[0] == _EH_FRAME)
        (count,) = struct.unpack("<I", self._at(table + 8, 4))
        low = at = 0
        while low < count:  # finds the last function that begins before the address
            middle = (low + count) // 2
            start, entry = struct.unpack("<ii", self._at(table + 12 + 8 * middle, 8))
            if table + start <= address:
                low, at = middle + 1, table + entry
            else:
                count = middle
        own = self._record(at)
        back, start, size = struct.unpack_from("<IiI", own)
        common = self._record(at + 4 - back)
        position = address - (at + 8 + start)
        if not common[4:].startswith(_COMMON) or not 0 <= position < size:
            raise ValueError
        return position, common[4 + len(_COMMON) :], own[13:]

    def _record(self, address: int) -> bytes:
        return self._at(address + 4, int.from_bytes(self._at(address, 4), "little"))
