"""The path of a socket may be longer than the limit of a socket address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stepset.agent.loop import Loop
from stepset.agent.rsh import Server, UnixPath


@pytest.mark.parametrize("length", [1, 150])
def test_a_socket_with_a_path_of_any_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("d" * length) / "socket"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with UnixPath(str(path)) as address:
            assert len(address) < 108
            listener.bind(address)
        listener.listen()
        with UnixPath(str(path)) as address:
            client.connect(address)


def test_a_server_replaces_an_existing_socket(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "sockets" / "a"
    for _ in range(2):
        Server(str(path), {}, "", loop).stop(15)
    assert path.exists()
