"""Injected faults: the failure has the right kind, names the first failing rank, and no process remains."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.backends.local.runs.store import RunStore
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from tests.local.conftest import GRACE, Local, eventually_none, living, wait_for
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local

TORCH = {"kind": "torch", "launcher": "none"}
SLEEP = "import time; time.sleep(600)"


def failure_of(status: RunStatus) -> Failure:
    assert status.phase is Phase.FAILED and status.failure is not None
    return status.failure


class TestARankThatFails:
    def test_is_named_with_its_error_and_last_lines_and_the_others_are_aftermath(self, local: Local) -> None:
        # If a rank had not started yet, its node would be in the aftermath instead of the rank.
        script = f"""
            import os, pathlib, time
            here = pathlib.Path({str(local.directory)!r})
            (here / f"started-{{os.environ['RANK']}}").touch()
            if os.environ["RANK"] == "3":
                while len(list(here.glob("started-*"))) < 4:
                    time.sleep(0.02)
                print("about to fail")
                raise ValueError("bad learning rate")
            time.sleep(600)
        """
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2, procs_per_node=2))
        assert (failure.kind, failure.rank, failure.pod) == (FailureKind.USER_ERROR, 3, "node-1")
        assert (failure.exit_code, failure.signal) == (1, None)
        assert failure.error == "ValueError: bad learning rate"
        assert "about to fail" in failure.tail
        assert set(failure.aftermath) == {"rank 0", "rank 1", "rank 2"}
        states = {row.source: row.state for row in local.backend.status("job").ranks}
        assert states == {"rank 0": "Stopped", "rank 1": "Stopped", "rank 2": "Stopped", "rank 3": "Failed"}

    def test_after_the_exit_of_its_peer_names_the_peer(self, local: Local) -> None:
        script = f"""
            import os, pathlib, time
            gone = pathlib.Path({str(local.path("gone"))!r})
            if os.environ["RANK"] == "1":
                gone.touch()
                os._exit(0)
            while not gone.exists():
                time.sleep(0.02)
            raise ConnectionResetError("Connection reset by peer")
        """
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2))
        assert failure.rank == 0
        message = r"rank 0 \(pod node-0\) exited with code 1(, \d s)? after rank 1 had exited with code 0: Connect.*"
        assert re.fullmatch(message, failure.message)
        assert failure.aftermath == ()

    @pytest.mark.parametrize("error", ["argparse.ArgumentParser().parse_args(['--wrong'])", "import no_such_module"])
    def test_is_distinguished_from_ranks_that_failed_with_the_same_error(self, local: Local, error: str) -> None:
        script = f"""
            import argparse, os, signal, time
            if os.environ["RANK"] == "0":
                stopped = []
                signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
                open("ready", "w").close()
                while not stopped:
                    time.sleep(0.02)
            while not os.path.exists("ready"):
                time.sleep(0.02)
            {error}
        """
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2, procs_per_node=1))
        assert (failure.rank, failure.same_error, failure.aftermath) == (1, ("rank 0",), ()), failure
        assert {row.state for row in local.backend.status("job").ranks} == {"Failed"}

    def test_is_distinguished_from_ranks_that_lost_it_as_a_peer(self, local: Local) -> None:
        # Rank 1 fails; rank 0 notices, and ends before rank 1 does.
        script = """
            import os, socket, time
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            if os.environ["RANK"] == "0":
                peer = socket.create_server(address).accept()[0]
                peer.send(str(os.getpid()).encode())
                if not peer.recv(1):
                    raise ConnectionResetError("Connection closed by peer")
            for _ in range(500):
                try:
                    peer = socket.create_connection(address)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            rank_0 = peer.recv(20).decode()
            peer.close()
            while os.path.exists(f"/proc/{rank_0}"):
                time.sleep(0.01)
            raise KeyError("the real one")
        """
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2, procs_per_node=1))
        assert (failure.rank, failure.error) == (1, "KeyError: 'the real one'")
        assert failure.aftermath == ("rank 0",)

    def test_stops_a_hanging_rank_that_ignores_sigterm(self, local: Local) -> None:
        script = """
            import os, signal, sys, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.environ["RANK"] == "0":
                while not os.path.exists("ignores"):
                    time.sleep(0.01)
                sys.exit(7)
            open("ignores", "w").close()
            time.sleep(600)
        """
        began = time.monotonic()
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2, procs_per_node=1))
        assert time.monotonic() - began < LIMIT, "less than the sleep of rank 1"
        assert (failure.rank, failure.exit_code, failure.aftermath) == (0, 7, ("rank 1",))

    def test_by_a_crash_is_named_by_its_signal(self, local: Local) -> None:
        failure = failure_of(local.run("import os; os.abort()"))
        assert (failure.kind, failure.signal) == (FailureKind.USER_ERROR, signal.SIGABRT)
        assert "rank 0 (pod node-0) was killed by SIGABRT" in failure.message

    def test_leaves_others_the_grace_period_to_write_a_checkpoint(self, local: Local) -> None:
        script = """
            import os, signal, sys, time
            def save(*_):
                time.sleep(0.5)
                open("checkpoint", "w").write("saved")
                sys.exit(0)
            if os.environ["RANK"] == "0":
                while not os.path.exists("ready"):
                    time.sleep(0.01)
                sys.exit(1)
            signal.signal(signal.SIGTERM, save)
            open("ready", "w").close()
            time.sleep(600)
        """
        local.backend = LocalBackend(local.home, grace=LIMIT)
        failure = failure_of(local.run(script, framework=TORCH, num_nodes=2, procs_per_node=1))
        assert local.path("checkpoint").read_text() == "saved"
        assert (failure.rank, failure.aftermath) == (0, ("rank 1",))

    def test_ends_together_with_its_detached_processes(self, local: Local) -> None:
        script = """
            import subprocess, sys
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            sys.exit(int(sys.argv[1]))
        """
        assert failure_of(local.run(script, args=["1"])).exit_code == 1
        assert local.run(script, args=["0"]).phase is Phase.SUCCEEDED


class TestAKill:
    def test_of_a_rank_from_outside_is_an_infrastructure_failure(self, local: Local) -> None:
        script = "import os; open(f'pid-{os.environ[\"RANK\"]}', 'w').write(str(os.getpid()))\n" + SLEEP
        handle = local.start(script, framework=TORCH, num_nodes=2, procs_per_node=1)
        wait_for(local.path("pid-0"))
        os.kill(int(wait_for(local.path("pid-1"))), signal.SIGKILL)
        failure = failure_of(handle.wait())
        assert (failure.kind, failure.rank, failure.signal) == (FailureKind.INFRASTRUCTURE, 1, signal.SIGKILL)
        assert failure.message == "rank 1 (pod node-1) was killed by SIGKILL; who sent the signal is unknown."

    def test_of_a_whole_node_leaves_no_process_of_it(self, local: Local) -> None:
        # The agent is killed first, so it cannot stop the process that its rank has detached.
        script = """
            import os, subprocess, sys, time
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            open(f"agent-{os.environ['RANK']}", "w").write(str(os.getppid()))
            time.sleep(600)
        """
        handle = local.start(script, framework=TORCH, num_nodes=2, procs_per_node=1)
        wait_for(local.path("agent-0"))
        os.kill(int(wait_for(local.path("agent-1"))), signal.SIGKILL)
        status = handle.wait()
        failure = failure_of(status)
        assert (failure.kind, failure.pod, failure.signal) == (FailureKind.INFRASTRUCTURE, "node-1", signal.SIGKILL)
        assert [row.state for row in status.ranks] == ["Stopped", "Failed"]
        assert living(local.directory) == []


class TestOutOfMemory:
    def test_is_detected_by_the_ranks_exception(self, local: Local) -> None:
        script = """
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (400 * 2**20, 400 * 2**20))
            hoard = [bytearray(2**24) for _ in range(1000)]
        """
        failure = failure_of(local.run(script))
        assert (failure.kind, failure.rank, failure.error) == (FailureKind.OUT_OF_MEMORY, 0, "MemoryError")
        assert "memory" in failure.advice

    @pytest.fixture
    def tight(self) -> Iterator[Path]:
        """A control group of 40 MiB; the kernel kills processes in it that need more."""
        root = Path("/sys/fs/cgroup")
        base, limit = (root / "memory", "memory.limit_in_bytes") if (root / "memory").is_dir() else (root, "memory.max")
        group = base / f"stepset-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            pytest.skip("creating a control group requires root")
        try:
            if not (group / limit).exists():
                pytest.skip("this system has no memory controller for control groups")
            (group / limit).write_text(str(40 * 2**20))
            yield group
        finally:
            group.rmdir()

    def test_is_detected_by_the_kernels_counter(self, local: Local, tight: Path) -> None:
        script = f"""
            import os
            open("{tight}/cgroup.procs", "w").write(str(os.getpid()))
            hoard = [b"x" * 2**20 for _ in range(100)]
        """
        failure = failure_of(local.run(script))
        assert (failure.kind, failure.signal) == (FailureKind.OUT_OF_MEMORY, signal.SIGKILL)
        assert failure.message == "rank 0 (pod node-0) was killed by SIGKILL, out of memory."


class TestTheCallingProcess:
    """The ranks of a run when the process that called `stepset.run` ends."""

    @pytest.fixture
    def parent(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
        monkeypatch.setenv("STEPSET_HOME", str(local.home))
        local.path("train.py").write_text(
            "import os, subprocess, sys, time\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
            "open('up-' + os.environ['STEPSET_NODE_RANK'], 'w').write('1')\n"
            "time.sleep(600)\n"
        )
        program = (
            "import stepset\n"
            "try:\n"
            "    job = {'name': 'job', 'framework': 'plain', 'script': 'train.py', 'num_nodes': 2}\n"
            "    stepset.run({**job, 'termination_grace_period': 4})\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', flush=True)\n"
        )
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, cwd=local.directory, stdout=subprocess.PIPE, text=True) as process:
            wait_for(local.path("up-0"))
            wait_for(local.path("up-1"))
            yield process
            process.kill()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_when_killed_leaves_no_processes_and_a_lost_run(
        self, local: Local, parent: subprocess.Popen[str], number: int
    ) -> None:
        assert until(lambda: LocalBackend(local.home).status("job").phase is Phase.RUNNING)
        parent.send_signal(number)
        assert parent.wait() == -number
        assert eventually_none(lambda: living(local.directory)) == []
        lost = LocalBackend(local.home).wait("job", timeout=LIMIT)
        assert (lost.phase, int(lost.exit_code)) == (Phase.LOST, 3)
        assert lost.failure is not None and f"pid {parent.pid}" in lost.failure.message

    def test_when_interrupted_stops_the_run_as_cancelled(self, local: Local, parent: subprocess.Popen[str]) -> None:
        parent.send_signal(signal.SIGINT)
        assert parent.wait(timeout=LIMIT) == 0
        assert parent.stdout is not None and parent.stdout.read() == "interrupted\n"
        assert living(local.directory) == []
        failure = failure_of(LocalBackend(local.home).status("job"))
        assert failure.kind is FailureKind.CANCELLED

    def test_ends_when_another_process_cancels_the_run(self, local: Local, parent: subprocess.Popen[str]) -> None:
        backend = LocalBackend(local.home)
        backend.cancel("job")
        assert failure_of(backend.wait("job", timeout=LIMIT)).kind is FailureKind.CANCELLED
        assert parent.wait(timeout=LIMIT) == 1

    def test_when_killed_after_a_fork_leaves_no_processes_of_the_run(self, local: Local, tmp_path: Path) -> None:
        # The forked child continues to run, and must not make the run's supervisor seem to run.
        local.path("train.py").write_text("open('up', 'w').write('1')\n" + SLEEP)
        program = f"""
import os, sys, time
from pathlib import Path
from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.sources import read_sources
from stepset.spec import parse_job
job = parse_job({{"name": "job", "framework": "plain", "script": "train.py"}})
LocalBackend(Path({str(local.home)!r})).start(RunRequest(job, read_sources(job)))
while not Path("up").exists():
    time.sleep(0.01)
child = os.fork()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""
        with subprocess.Popen(
            [sys.executable, "-c", program], cwd=local.directory, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            process.kill()
            process.stdout.close()
        try:
            lost = LocalBackend(local.home).wait("job", timeout=LIMIT)
            others = eventually_none(lambda: [p for p in living(local.directory) if not p.startswith(f"{child}:")])
        finally:
            os.kill(child, signal.SIGKILL)
        assert (lost.phase, others) == (Phase.LOST, [])


class TestCancelling:
    def test_twice_does_not_wait_for_the_grace_period(self, local: Local) -> None:
        patient = LocalBackend(local.home, grace=300)
        script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w').write('1')\n" + SLEEP
        handle = patient.start(local.request(script), local.listener)
        wait_for(local.path("up"))
        began = time.monotonic()
        handle.cancel()
        handle.cancel()
        assert failure_of(handle.wait()).kind is FailureKind.CANCELLED
        assert time.monotonic() - began < LIMIT, "the grace period is much longer"


class TestAFullDisk:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        """A file system of 1 MiB."""
        place = tmp_path / "small"
        place.mkdir()
        mount = shutil.which("mount")
        if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "none", place]).returncode:
            pytest.skip("mounting a small file system requires root")
        yield place
        subprocess.run(["umount", place], check=True)

    def test_fails_the_run_as_infrastructure_and_the_verdict_is_written(self, local: Local, small: Path) -> None:
        backend = LocalBackend(small / "home", grace=GRACE)
        script = """
            import os, time
            while True:
                os.write(1, b"a line that takes its place on the disk\\n" * 500)
                time.sleep(0.01)
        """
        status = backend.start(local.request(script, num_nodes=2), local.listener).wait()
        failure = failure_of(status)
        assert failure.kind is FailureKind.INFRASTRUCTURE
        assert "No space left on device" in failure.message
        assert int(status.exit_code) == 3
        # The verdict is on the disk, for readers in other processes.
        assert backend.status(status.name) == status
        assert living(local.directory) == []

    def test_before_the_run_is_an_error_of_start_and_leaves_no_files(self, local: Local, small: Path) -> None:
        (small / "fill").write_bytes(b"x" * (1024 * 1024 - 100_000))
        from stepset.errors import InfrastructureError

        with pytest.raises(InfrastructureError, match="No space left on device; free some space"):
            LocalBackend(small / "home").start(local.request(""))
        assert list(RunStore(small / "home").runs.iterdir()) == []


def test_a_port_that_is_taken_is_a_rendezvous_failure(local: Local) -> None:
    script = """
        import os, socket
        socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    """
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        status = local.run(script, framework=TORCH, env={"MASTER_PORT": {"value": str(port), "override": True}})
    failure = failure_of(status)
    assert (failure.kind, failure.rank) == (FailureKind.RENDEZVOUS, 0)
    assert "Address already in use" in failure.error
    assert int(status.exit_code) == 3


class TestTheResult:
    @pytest.mark.parametrize(("written", "problem"), [('"x" * 5000', "5000 bytes"), ('"no json"', "not JSON")])
    def test_that_is_too_long_or_not_json_is_rejected(self, local: Local, written: str, problem: str) -> None:
        script = f"import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write({written})"
        status = local.run(script, num_nodes=2)
        failure = failure_of(status)
        assert (failure.kind, failure.rank, int(status.exit_code)) == (FailureKind.REJECTED, 0, 2)
        assert problem in failure.message
        assert status.result is None
