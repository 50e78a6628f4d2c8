"""An answer that does not begin: a server that takes a request and says nothing, as for a pod that prints nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepset.backends.kubernetes.client import Connection, UnreachableError, connect
from stepset.backends.kubernetes.log_pods import LogPod
from stepset.backends.kubernetes.pod_log import PodLog
from tests.kubernetes.nowhere import kubeconfig
from tests.waiting import until

POD = LogPod("u", "silent", "node", "node", 0, 0, "node 0", False, True, 0, False, False)


class Silent:
    """A server that says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self._clients: list[socket.socket] = []
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            self.requests.append(client.recv(65536))

    def close(self) -> None:
        """Ends it; whoever connected has gone."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join(60)
        for each in (self._listener, *self._clients):
            each.close()


@pytest.fixture
def server() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


@pytest.fixture
def connection(server: Silent, tmp_path: Path) -> Iterator[Connection]:
    with connect(kubeconfig(tmp_path, server.port)) as connection:
        yield connection


def test_an_answer_that_does_not_begin_is_given_up_at_once(server: Silent, connection: Connection) -> None:
    stream, raised = connection.stream("/", {}, 120), []

    def ask() -> None:
        with pytest.raises(UnreachableError) as error, stream:
            pass
        raised.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert until(lambda: bool(server.requests))
    stream.close()
    assert until(lambda: bool(raised), 10)


def test_one_that_was_given_up_before_it_was_asked_for_is_not_waited_for(connection: Connection) -> None:
    stream = connection.stream("/", {}, 120)
    stream.close()
    with pytest.raises(UnreachableError), stream:
        pass


def test_a_log_of_which_nothing_has_come_is_closed_at_once(server: Silent, connection: Connection) -> None:
    log = PodLog(connection, "ns", POD, lambda _: None)
    log.start()
    assert until(lambda: bool(server.requests))
    log.close()
    assert until(lambda: not log.alive, 10)


def test_at_a_runs_end_it_is_asked_for_what_there_is(server: Silent, connection: Connection) -> None:
    log = PodLog(connection, "ns", POD, lambda _: None)
    log.start()
    assert until(lambda: bool(server.requests))
    assert b"follow=true" in server.requests[0]
    log.finish()
    assert until(lambda: len(server.requests) > 1, 10)
    assert b"follow=true" not in server.requests[1]
    log.close()
    assert until(lambda: not log.alive, 10)
