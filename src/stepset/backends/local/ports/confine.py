"""Executes a program whose listen(2) calls wait for `stepset.backends.local.ports.guard.Guard`.

The command is `python confine.py FD PROGRAM ARGUMENT...`. The command installs a seccomp filter, which PROGRAM and all
its descendants inherit. The command sends the filter's listener over the Unix socket FD. This module uses only the
standard library.
"""

from __future__ import annotations

import _socket  # `import socket` would account for half of the time until the agent starts
import ctypes
import os
import struct
import sys
from array import array

# Machine -> (AUDIT_ARCH_*, system call number of seccomp, system call number of listen). Sources: linux/audit.h;
# arch/x86/entry/syscalls/syscall_64.tbl; asm-generic/unistd.h
_SYSTEM_CALLS = {
    "x86_64": (0xC000003E, 317, 50),
    "aarch64": (0xC00000B7, 277, 201),
    "riscv64": (0xC00000F3, 277, 201),
}
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_ALLOW, _USER_NOTIF = 0x7FFF0000, 0x7FC00000
_SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 4, 8, 32
_NO_NEW_PRIVS = 38
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def kernel_notifies() -> bool:
    """Returns whether the kernel can report system calls to another process.

    Linux 5.0 and later versions support such reports. A sandbox may not support such reports.
    """
    calls = _SYSTEM_CALLS.get(os.uname().machine)
    if calls is None or sys.platform != "linux":
        return False
    action = ctypes.c_uint32(_USER_NOTIF)
    return bool(_libc().syscall(calls[1], _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0)


def install_filter() -> int:
    """Installs the filter in this process, and returns the filter's listener. Raises OSError."""
    arch, seccomp, listen = _SYSTEM_CALLS[os.uname().machine]
    code = b"".join(
        struct.pack("HBBI", *each)
        for each in (
            (_LOAD, 0, 0, _ARCH),
            (_JUMP_EQUAL, 0, 2, arch),  # programs of another architecture are not filtered
            (_LOAD, 0, 0, _NUMBER),
            (_JUMP_EQUAL, 1, 0, listen),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _USER_NOTIF),
        )
    )
    instructions = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(instructions))
    libc, error = _libc(), 0
    # _WAIT_KILLABLE requires Linux 5.19. With this flag, a signal (for example, of a timer) does not interrupt a
    # call that the guard is handling.
    for flags in (_SPEC_ALLOW | _NEW_LISTENER | _WAIT_KILLABLE, _SPEC_ALLOW | _NEW_LISTENER):
        for no_new_privs in (False, True):  # unprivileged processes must set no_new_privs
            if no_new_privs:
                libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
            listener = int(libc.syscall(seccomp, _SET_MODE_FILTER, flags, ctypes.byref(program)))
            if listener >= 0:
                return listener
            error = ctypes.get_errno()
            if error != 13:  # EACCES
                break
    raise OSError(error, os.strerror(error))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _main(channel: int, command: list[str]) -> None:
    to_guard = _socket.socket(fileno=channel)
    try:
        listener = install_filter()
    except OSError as error:
        sys.exit(f"stepset: the ports of this node cannot be confined to this machine: {error.strerror}")
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", [listener]))]
    to_guard.sendmsg([b"\0"], rights)
    os.close(listener)
    to_guard.close()
    os.execv(command[0], command)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
