"""Loopback addresses and ports: concurrent runs share none."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stepset.backends.local.net import Claims, scratch_directory
from stepset.errors import InfrastructureError

NAMES = [f"port-{n}" for n in range(8)]


class TestAddresses:
    def test_are_different_for_each_pod_and_can_be_listened_on(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as claims:
            addresses = claims.addresses(3)
            assert len(set(addresses)) == 3
            for address in addresses:
                with socket.create_server((address, 0)):
                    pass

    def test_sort_as_text_in_the_order_of_the_pods(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as claims:
            addresses = claims.addresses(120)
            assert sorted(addresses) == addresses

    def test_may_span_several_blocks(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as claims:
            assert len(set(claims.addresses(400))) == 400

    def test_are_never_shared_by_two_runs(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as one, Claims(tmp_path) as other:
            assert not set(one.addresses(50)) & set(other.addresses(50))


class TestPorts:
    def test_are_free_and_outside_the_ephemeral_range(self, tmp_path: Path) -> None:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        with Claims(tmp_path) as claims:
            ports = claims.ports(NAMES)
            assert list(ports) == NAMES
            assert len(set(ports.values())) == len(NAMES)
            for port in ports.values():
                assert 1024 < port < low
                with socket.create_server(("0.0.0.0", port)):
                    pass

    def test_are_never_shared_by_two_runs(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as one, Claims(tmp_path) as other:
            assert not set(one.ports(NAMES).values()) & set(other.ports(NAMES).values())

    def test_with_a_listener_are_not_claimed(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with (
                Claims(tmp_path, range(port, port + 1)) as claims,
                pytest.raises(InfrastructureError, match="no free port for 'master'"),
            ):
                claims.ports(["master"])


class TestAClaim:
    def test_is_released(self, tmp_path: Path) -> None:
        with Claims(tmp_path) as claims:
            claims.addresses(1)
            claims.ports(["master"])
            assert list(tmp_path.iterdir())
            claims.release_ports()
            assert [p.name[:3] for p in tmp_path.iterdir()] == ["net"]
        assert not list(tmp_path.iterdir())

    def test_of_a_process_that_was_killed_is_free(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path; from stepset.backends.local.net import Claims\n"
            f"claims = Claims(Path({str(tmp_path)!r}), range(20_000, 20_001)); claims.ports(['p'])\n"
            "print('held', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with Claims(tmp_path, range(20_000, 20_001)) as claims:
                with pytest.raises(InfrastructureError):
                    claims.ports(["p"])
                holder.kill()
                holder.wait()
                assert claims.ports(["p"]) == {"p": 20_000}


def test_the_directory_of_the_locks_must_belong_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"stepset-{os.getuid()}").symlink_to("/")
    with pytest.raises(InfrastructureError, match="belongs to another user"):
        scratch_directory()
