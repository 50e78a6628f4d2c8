"""Claims loopback addresses and free ports for one run. Two runs never share an address or a port.

A claim is a lock on a small file. The kernel releases the lock when the process that holds it exits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stepset.backends.local.private_files import open_private
from stepset.errors import InfrastructureError
from stepset.trusted_path import check_path

LOCALHOST = "127.0.0.1"
FIRST_HOST = 100
"""The last number in the address of pod 0. The last number has three digits for all pods. Therefore the order of the
addresses as strings is the order of the pods. c10d assigns ranks to nodes in the order of the strings (torch 2.15,
dynamic_rendezvous.py, _NodeDesc)."""
HOSTS_PER_BLOCK = 150
_PORTS = range(10_000, 32_768)
"""The default ports. Outgoing connections use the ephemeral ports of Linux, which are above these ports."""
_TRIES = 2_000


class Claims:
    """The addresses and ports that this process holds for a run. `release` releases them.

    The exit of a `with` block calls `release`.

    Args:
        directory: the directory of the lock files. All processes of a user must use the same directory.
        ports: the ports that can be claimed. Default: the ports below the ephemeral ports.
    """

    def __init__(self, directory: Path | None = None, ports: range | None = None) -> None:
        self._directory = directory or scratch_directory()
        self._ports = _allowed_ports() if ports is None else ports
        self._held: dict[str, int] = {}

    def addresses(self, count: int) -> list[str]:
        """Claims a loopback address for each of `count` pods.

        If the system has only the loopback address 127.0.0.1, all pods get this address.
        """
        if not _usable("127.9.9.9"):
            return [LOCALHOST] * count
        found: list[str] = []
        for number in random.sample(range(224 * 254), _TRIES):
            block = f"127.{16 + number // 254}.{1 + number % 254}"
            if self._claim(f"net-{block}"):
                found += [f"{block}.{FIRST_HOST + k}" for k in range(HOSTS_PER_BLOCK)]
                if len(found) >= count:
                    return found[:count]
        raise InfrastructureError(
            f"{self._directory}: no block of loopback addresses is free; wait until another run has ended"
        )

    def ports(self, names: Sequence[str]) -> dict[str, int]:
        """Claims a port for each name. No process listens on these ports.

        Raises:
            InfrastructureError: too few ports are free.
        """
        found: dict[str, int] = {}
        candidates = self._free_ports()
        for name in names:
            port = next(candidates, None)
            if port is None:
                first, last = self._ports.start, self._ports.stop - 1
                raise InfrastructureError(f"no free port for {name!r} among {first} to {last}")
            found[name] = port
        return found

    def _free_ports(self) -> Iterator[int]:
        for port in random.sample(self._ports, min(_TRIES, len(self._ports))):
            if self._claim(f"port-{port}"):
                if _listenable(port):
                    yield port
                else:
                    self._release(f"port-{port}")

    def release_ports(self) -> None:
        """Releases the ports and keeps the addresses."""
        for name in [n for n in self._held if n.startswith("port-")]:
            self._release(name)

    def release(self) -> None:
        for name in list(self._held):
            self._release(name)

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _claim(self, name: str) -> bool:
        path = self._directory / f"{name}.lock"
        fd = open_private(path, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file. A lock on a removed file does not exclude other processes.
            if os.fstat(fd).st_ino == os.stat(path).st_ino:  # noqa: PTH116  # like fstat
                self._held[name] = fd
                return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.ENOENT):
                os.close(fd)
                raise
        os.close(fd)
        return False

    def _release(self, name: str) -> None:
        fd = self._held.pop(name)
        with suppress(OSError):
            (self._directory / f"{name}.lock").unlink()
        os.close(fd)


def scratch_directory() -> Path:
    """Creates and returns this user's directory for lock files and sockets, `$TMPDIR/stepset-<uid>`.

    Raises InfrastructureError if the directory cannot be created, or if another user could replace the directory.
    """
    user = os.geteuid()
    path = Path(tempfile.gettempdir()) / f"stepset-{user}"
    check_path(path.parent, "TMPDIR")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        about = path.lstat()
    except OSError as error:
        raise InfrastructureError(
            f"{path}: cannot be created: {error.strerror}; set TMPDIR to a writable directory"
        ) from error
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != user:
        raise InfrastructureError(
            f"{path}: belongs to another user; remove it, or set TMPDIR to a directory of your own"
        )
    if about.st_mode & 0o077:
        path.chmod(0o700)
    return path


def loopback_interface() -> str:
    """Returns the name of the loopback interface: `lo` on Linux, `lo0` on macOS."""
    with suppress(OSError):
        return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
    return "lo"


def _allowed_ports() -> range:
    """Returns the ports below the ephemeral ports of this system."""
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _PORTS
    return range(_PORTS.start, low) if low - _PORTS.start > _TRIES else _PORTS


def _usable(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _listenable(port: int) -> bool:
    """Returns whether the port is free on every address. The store of torchrun listens on every address."""
    families = [(socket.AF_INET, "0.0.0.0")]
    if socket.has_ipv6:
        families.append((socket.AF_INET6, "::"))
    for family, address in families:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True
