"""Confines every listening TCP socket of a local run to this machine.

Many libraries listen at all addresses and have no option to change that: the store of torchrun, Open MPI, the workers
of XGBoost. Every node of a run therefore has a seccomp filter that reports each listen(2) to this process. Before the
call proceeds, this process attaches a socket filter that drops packets from all interfaces but the loopback interface.
Without the permission for that, it binds the socket to this interface. Connections to other hosts, and to services of
this machine, are not affected, and no privileges are needed (docs/design/local.md).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepset.backends.local.ports import confine

_PIDFD_GETFD = 438
# linux/seccomp.h: the sizes of struct seccomp_notif and seccomp_notif_resp, whose layout is stable, and the requests.
_NOTIF = struct.Struct("QIIiIQ6Q")
_RESPONSE = struct.Struct("QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_SO_ATTACH_FILTER = _SO_GET_FILTER = 26
_LOOPBACK = 1
"""The index of the loopback interface in every network namespace (linux/net.h, LOOPBACK_IFINDEX)."""
# linux/filter.h: accepts a packet if the interface that delivered it is the loopback interface. This includes packets
# from this machine to its other addresses, which SO_BINDTODEVICE would refuse.
_ONLY_LOOPBACK = b"".join(
    struct.pack("HBBI", *each)
    for each in ((0x20, 0, 0, 0xFFFFF008), (0x15, 0, 1, _LOOPBACK), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))
)


class Guard:
    """Handles the listen(2) calls of a run's nodes in a thread; call `close` after the last of them has ended.

    Args:
        python: the interpreter that starts the nodes.
        problem: called in the guard's thread with one line about each refused call.
    """

    def __init__(self, python: str, problem: Callable[[str], None]) -> None:
        self._python, self._problem = python, problem
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs = theirs
        self._listeners: set[int] = set()
        self._thread = threading.Thread(target=self._serve, name="stepset ports", daemon=True)
        self._thread.start()

    @property
    def descriptor(self) -> int:
        """The descriptor that the process of `command` must inherit."""
        return self._theirs.fileno()

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Returns the command that runs `command`, whose first word is a path, with confined ports."""
        return (self._python, "-I", "-S", confine.__file__, str(self.descriptor), *command)

    def close(self) -> None:
        """Ends the thread; processes that still have the filter cannot listen any more."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._ours.close()
        self._theirs.close()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._ours.fileno(), select.POLLIN)
        try:
            while True:
                for fd, events in poll.poll():
                    if fd != self._ours.fileno():
                        if events & select.POLLIN:
                            self._handle(fd)
                        elif events:  # the last process with this filter has ended
                            poll.unregister(fd)
                            self._listeners.remove(fd)
                            os.close(fd)
                    elif (listener := _received(self._ours)) is None:
                        return
                    elif listener < 0:
                        self._problem("a node cannot listen at any port: too many open files; raise `ulimit -n`")
                    else:
                        self._listeners.add(listener)
                        poll.register(listener, select.POLLIN)
        finally:
            for fd in self._listeners:
                os.close(fd)

    def _handle(self, listener: int) -> None:
        """Answers one notification; one whose process has ended meanwhile needs no answer."""
        notice = bytearray(_NOTIF.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError:
            return
        ident, thread, _, _, _, _, fd, *_ = _NOTIF.unpack(notice)
        try:
            _confine_socket(thread, fd & 0x7FFFFFFF)
            answer = _RESPONSE.pack(ident, 0, 0, _CONTINUE)
        except OSError as error:
            # A process that has ended, or closed the descriptor, fails by itself.
            if error.errno not in (errno.EBADF, errno.ESRCH, errno.ENOENT, errno.ENOTSOCK):
                self._problem(f"a process could not listen: its port cannot be confined to this machine: {error}")
            answer = _RESPONSE.pack(ident, 0, -(error.errno or errno.EPERM), 0)
        with suppress(OSError):
            fcntl.ioctl(listener, _SEND, bytearray(answer))


@dataclass(frozen=True)
class Confinement:
    """How the ports of a run are confined.

    Args:
        guard: whether the run needs a guard.
        obstacle: why the ports cannot be confined; "" if they can.
        outer_addresses: whether this machine also reaches confined ports by its non-loopback addresses.
    """

    guard: bool
    obstacle: str = ""
    outer_addresses: bool = True


def confinement() -> Confinement:
    """Returns how the ports of a run are confined on this system; raises nothing."""
    if _confined():
        return Confinement(guard=False)
    obstacle = _obstacle()
    with socket.socket() as probe:
        return Confinement(
            guard=not obstacle, obstacle=obstacle, outer_addresses=not obstacle and _filter_socket(probe)
        )


def _obstacle() -> str:
    try:
        if not confine.kernel_notifies():
            return "this system has no seccomp notifications"
        _try_socket()
        if _ptrace_scope() > 1 and os.geteuid() != 0:
            return "kernel.yama.ptrace_scope forbids access to child processes"
        if _filtered() and (why := _try_child()):
            return why
    except (OSError, AttributeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _confined() -> bool:
    """Whether this process is itself part of a confined run, whose filter also applies to its descendants."""
    if not _filtered():
        return False
    with suppress(OSError), socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.listen(1)
        device = probe.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0")
        return bool(device or probe.getsockopt(socket.SOL_SOCKET, _SO_GET_FILTER, 64))
    return False


def _received(channel: socket.socket) -> int | None:
    """Returns the descriptor that the channel delivers; -1 if this process has too many; None at the channel's end."""
    data, extra, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    if not data:
        return None
    fds = array("i")
    for _, _, content in extra:
        fds.frombytes(content[:4])
    if not fds:
        return -1
    os.set_inheritable(fds[0], False)
    return fds[0]


def _confine_socket(thread: int, fd: int) -> None:
    """Confines a TCP socket of another process to the loopback interface; raises OSError."""
    pidfd = os.pidfd_open(_process_of(thread))
    try:
        own = _pidfd_getfd(pidfd, fd)
    finally:
        os.close(pidfd)
    try:
        theirs = socket.socket(fileno=own)
    except OSError:  # not a socket: the program's own mistake
        os.close(own)
        raise
    with theirs:
        if theirs.family in (socket.AF_INET, socket.AF_INET6) and not _filter_socket(theirs):
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


def _filter_socket(sock: socket.socket) -> bool:
    """Attaches the filter; returns False without the permission: newer kernels require CAP_NET_ADMIN for TCP (6.18)."""
    code = ctypes.create_string_buffer(_ONLY_LOOPBACK, len(_ONLY_LOOPBACK))
    program = struct.pack("HP", len(_ONLY_LOOPBACK) // 8, ctypes.addressof(code))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except PermissionError:
        return False
    return True


def _process_of(thread: int) -> int:
    status = Path(f"/proc/{thread}/status").read_text(encoding="utf-8", errors="replace")
    return next((int(line[5:]) for line in status.splitlines() if line.startswith("Tgid:")), thread)


def _pidfd_getfd(pidfd: int, fd: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    own = int(libc.syscall(_PIDFD_GETFD, pidfd, fd, 0))
    if own < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return own


def _try_socket() -> None:
    """Confines a socket of this process; raises OSError if the system, or a sandbox, does not allow that."""
    with socket.socket() as probe:
        _confine_socket(os.getpid(), probe.fileno())


def _try_child() -> str:
    """Starts a confined child; returns why that failed: a container's filter may forbid another listener."""
    problems: list[str] = []
    guard = Guard(sys.executable, problems.append)
    try:
        done = subprocess.run(
            guard.command([sys.executable, "-I", "-S", "-c", "import socket; socket.socket().listen(1)"]),
            capture_output=True,
            pass_fds=(guard.descriptor,),
            check=False,
        )
    finally:
        guard.close()
    return "a filter of this container does not allow it" if done.returncode or problems else ""


def _filtered() -> bool:
    """Whether this process has a seccomp filter."""
    with suppress(OSError):
        return "\nSeccomp:\t2" in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return False


def _ptrace_scope() -> int:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    return 0
