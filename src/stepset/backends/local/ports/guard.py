"""Confines every listening TCP socket of a local run to this machine.

Many libraries listen on every address, and have no option to listen on fewer addresses. Examples are Open MPI,
the store of torchrun, and the workers of XGBoost. Therefore every node of a run has a seccomp filter that reports each
listen(2) call to this process. Before the call proceeds, this process attaches a socket filter to the socket. The
socket filter drops packets from all interfaces except the loopback interface. If this process has no permission to
attach a socket filter, it binds the socket to the loopback interface.

Connections from the run to other hosts are not affected. Connections to services of this machine are not affected. No
privileges are needed (docs/design/local.md).
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
# linux/seccomp.h defines struct seccomp_notif, struct seccomp_notif_resp, and the requests of ioctl(2). The layout of
# the structs is stable.
_NOTIF = struct.Struct("QIIiIQ6Q")
_RESPONSE = struct.Struct("QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_SO_ATTACH_FILTER = _SO_GET_FILTER = 26
_LOOPBACK = 1
"""The index of the loopback interface in every network namespace (linux/net.h, LOOPBACK_IFINDEX)."""
# linux/filter.h: accepts a packet if the loopback interface delivered the packet. The loopback interface also delivers
# packets from this machine to its non-loopback addresses. SO_BINDTODEVICE would refuse these packets.
_ONLY_LOOPBACK = b"".join(
    struct.pack("HBBI", *each)
    for each in ((0x20, 0, 0, 0xFFFFF008), (0x15, 0, 1, _LOOPBACK), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))
)


class Guard:
    """Handles the listen(2) calls of a run's nodes in a thread. Call `close` after the last node has exited.

    Args:
        python: the interpreter that starts the nodes.
        problem: a function that the guard's thread calls for each refused call of listen(2). The argument of the
            function is one line that describes the problem.
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
        """A file descriptor. A process that executes the command line from `command` must inherit this descriptor."""
        return self._theirs.fileno()

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Returns a command that runs `command` with confined ports. The first word of `command` must be a path."""
        return (self._python, "-I", "-S", confine.__file__, str(self.descriptor), *command)

    def close(self) -> None:
        """Stops the thread. Processes that still have the filter cannot listen any more."""
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
                        elif events:  # the last process with this filter has exited
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
        """Answers one notification about a listen(2) call. If the calling process has exited, no answer is needed."""
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
            # If the process has exited or closed the descriptor, its listen call fails, and `_problem` is not called.
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
        obstacle: why the ports cannot be confined, or "" if the ports can be confined.
        outer_addresses: whether this machine can also reach confined ports by its non-loopback addresses.
    """

    guard: bool
    obstacle: str = ""
    outer_addresses: bool = True


def confinement() -> Confinement:
    """Returns how the ports of a run are confined on this system. Raises no errors."""
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
    """Returns whether this process belongs to a confined run. The descendants of such a process are confined."""
    if not _filtered():
        return False
    with suppress(OSError), socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.listen(1)
        device = probe.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0")
        return bool(device or probe.getsockopt(socket.SOL_SOCKET, _SO_GET_FILTER, 64))
    return False


def _received(channel: socket.socket) -> int | None:
    """Returns the descriptor that the channel delivers.

    Returns -1 if this process has too many open descriptors, and None if the channel is closed.
    """
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
    """Confines a TCP socket of another process to the loopback interface. Raises OSError."""
    pidfd = os.pidfd_open(_process_of(thread))
    try:
        own = _pidfd_getfd(pidfd, fd)
    finally:
        os.close(pidfd)
    try:
        theirs = socket.socket(fileno=own)
    except OSError:  # the descriptor is not a socket, which is an error of the program
        os.close(own)
        raise
    with theirs:
        if theirs.family not in (socket.AF_INET, socket.AF_INET6) or _filter_socket(theirs):
            return
        # A program may call listen more than once. Without privileges, a bound socket cannot be bound again.
        if theirs.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0") != b"lo":
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


def _filter_socket(sock: socket.socket) -> bool:
    """Attaches the filter. Returns False if the socket accepts no filter.

    Newer kernels (6.18) require CAP_NET_ADMIN to filter TCP sockets. MPTCP sockets accept no filter. Go programs open
    MPTCP sockets by default.
    """
    code = ctypes.create_string_buffer(_ONLY_LOOPBACK, len(_ONLY_LOOPBACK))
    program = struct.pack("HP", len(_ONLY_LOOPBACK) // 8, ctypes.addressof(code))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
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
    """Confines a socket of this process. Raises OSError if the system or a sandbox does not allow this."""
    with socket.socket() as probe:
        _confine_socket(os.getpid(), probe.fileno())


def _try_child() -> str:
    """Starts a confined child process. Returns "" if the start succeeds, and the reason if the start fails.

    For example, the seccomp filter of a container may forbid the start.
    """
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
    """Returns whether this process has a seccomp filter."""
    with suppress(OSError):
        return "\nSeccomp:\t2" in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return False


def _ptrace_scope() -> int:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    return 0
