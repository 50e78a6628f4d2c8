"""A TCP proxy that injects network faults between a client and the API server: it resets, freezes or slows connections.

It forwards bytes unchanged, including TLS, so the client sees what it would see on a bad network; `proxy_to` writes the
kubeconfig. The server's certificate must name 127.0.0.1, as that of the test cluster does.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

_CHUNK = 1 << 16
_POLL = 0.05


class Proxy:
    """Forwards TCP connections to one server.

    Args:
        host, port: the server's address.

    Attributes:
        port: the port on 127.0.0.1 where the proxy listens.
        cuts: the number of connections that it has reset.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._rng = random.Random(0)
        self._mean: float | None = None
        self._closed = False
        self.cuts = 0
        self.rate: float | None = None
        self.port = 0
        self._listener = self._listen()

    def cut(self) -> int:
        """Resets all connections; returns their number."""
        with self._lock:
            links = [link for link in self._links if not link.frozen]
        for link in links:
            link.reset()
        return len(links)

    def cut_at_random(self, mean: float | None, seed: int = 0) -> None:
        """Resets each new connection after a random time.

        Args:
            mean: the mean of the exponentially distributed time, in seconds; None: new connections are not reset.
            seed: the seed of the random numbers.
        """
        self._rng, self._mean = random.Random(seed), mean

    def freeze(self) -> int:
        """Stops forwarding on the open connections without closing them; returns their number."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.frozen = True
        return len(links)

    def slow(self, rate: float | None) -> None:
        """Limits the bytes per second from the server on each connection; None: no limit."""
        self.rate = rate

    def refuse(self, refusing: bool = True) -> None:
        """Resets all connections and refuses new ones, as if the server were down; False ends that."""
        if refusing:
            self._stop_listening()
            self.cut()
        else:
            self._listener = self._listen()

    @property
    def connections(self) -> int:
        """The number of open connections, including frozen ones."""
        with self._lock:
            return len(self._links)

    def close(self) -> None:
        """Closes all connections and stops listening."""
        self._closed = True
        self._stop_listening()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.reset()

    def _listen(self) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = int(listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=10)
            except OSError:
                client.close()
                continue
            lifetime = None if self._mean is None else self._rng.expovariate(1 / self._mean)
            link = _Link(self, client, server, lifetime)
            with self._lock:
                self._links.add(link)
            if self._closed:
                link.reset()
            threading.Thread(target=link.run, daemon=True).start()

    def _ended(self, link: _Link, cut: bool) -> None:
        with self._lock:
            self._links.discard(link)
            self.cuts += cut


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket, lifetime: float | None) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._until = None if lifetime is None else time.monotonic() + lifetime
        self._cut = threading.Event()
        self.frozen = False
        for sock in (client, server):
            sock.settimeout(10)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self) -> None:
        """Resets the connection on both sides."""
        self._cut.set()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            self._forward()
        cut = self._cut.is_set()
        for sock in (self._client, self._server):
            with contextlib.suppress(OSError):
                if cut:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
        self._proxy._ended(self, cut)

    def _forward(self) -> None:
        open_ = {self._client: self._server, self._server: self._client}
        while open_ and not self._cut.is_set():
            if self._until is not None and time.monotonic() > self._until:
                self._cut.set()
                continue
            if self.frozen:
                self._cut.wait(_POLL)
                continue
            for sock in select.select(list(open_), [], [], _POLL)[0]:
                if self.frozen:
                    break
                self._pass(sock, open_)

    def _pass(self, sock: socket.socket, open_: dict[socket.socket, socket.socket]) -> None:
        data = sock.recv(_CHUNK)
        if not data:
            with contextlib.suppress(OSError):
                open_[sock].shutdown(socket.SHUT_WR)
            del open_[sock]
            return
        if sock is self._server and (rate := self._proxy.rate) is not None:
            time.sleep(len(data) / rate)
        open_[sock].sendall(data)


@contextlib.contextmanager
def proxy_to(kubeconfig: str, directory: Path) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of a kubeconfig's server, and a kubeconfig for the proxy.

    Args:
        kubeconfig: the server's kubeconfig.
        directory: the directory of the new kubeconfig.
    """
    text = Path(kubeconfig).read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text)
    context = next(row["context"] for row in config["contexts"] if row["name"] == config["current-context"])
    cluster = next(row["cluster"] for row in config["clusters"] if row["name"] == context["cluster"])
    address = urlsplit(cluster["server"])
    proxy = Proxy(address.hostname or "", address.port or 443)
    cluster["server"] = f"https://127.0.0.1:{proxy.port}"
    through = directory / "through-the-proxy.kubeconfig"
    through.write_text(yaml.safe_dump(config), encoding="utf-8")
    through.chmod(0o600)
    try:
        yield proxy, str(through)
    finally:
        proxy.close()
