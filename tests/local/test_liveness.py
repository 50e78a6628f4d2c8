"""A rank is reported as running only while its process, its agent and the run's supervisor exist."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.backends.local.liveness import PROCESSES_FILE, SUPERVISOR_FILE, with_lost_ranks, with_processes
from stepset.backends.local.processes import ProcessId, pid_space, process_stat
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.runs.store import RunStore
from stepset.run_status import FailureKind, Phase, RankStatus, RunStatus
from stepset.spec import TrainingJob
from tests.local.conftest import Local, living, wait_for
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local

RANKS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(f"new-{os.environ['RANK']}", "w") as file:
    file.write(f"{os.getpid()} {os.getppid()}")
os.rename(f"new-{os.environ['RANK']}", f"pids-{os.environ['RANK']}")
time.sleep(600)
"""

SUPERVISE = """
import stepset
stepset.run({"name": "job", "framework": {"kind": "torch", "launcher": "none"}, "script": "train.py",
             "num_nodes": 2, "procs_per_node": 2, "termination_grace_period": 4})
"""

FORKED = """
import ctypes, threading, time
from pathlib import Path

def fork():
    while not Path("fork").exists():
        time.sleep(0.01)
    libc = ctypes.PyDLL(None)
    child = libc.fork()
    if child == 0:
        libc.pause()
    Path("child.new").write_text(str(child))
    Path("child.new").rename("child")

threading.Thread(target=fork, daemon=True).start()
"""
"""A child that Python did not fork: it keeps every descriptor of its parent, including the lock of the run."""


@dataclass(frozen=True)
class Running:
    """A run of four running ranks on two nodes, and its processes.

    Args:
        supervisor: the process that called `stepset.run`.
        ranks: pid by rank; they ignore SIGTERM.
        agents: pid by node.
        home: the home of the run directories.
    """

    supervisor: subprocess.Popen[bytes]
    ranks: tuple[int, ...]
    agents: tuple[int, ...]
    home: Path

    @property
    def status(self) -> RunStatus:
        return LocalBackend(self.home).status("job")

    @property
    def states(self) -> list[str]:
        return [row.state for row in self.status.ranks]


@pytest.fixture
def running(local: Local, request: pytest.FixtureRequest) -> Iterator[Running]:
    local.path("train.py").write_text(RANKS)
    program = getattr(request, "param", "") + SUPERVISE
    env = {**os.environ, "STEPSET_HOME": str(local.home)}
    with subprocess.Popen([sys.executable, "-c", program], cwd=local.directory, env=env) as supervisor:
        try:
            pids = [tuple(map(int, wait_for(local.path(f"pids-{rank}")).split())) for rank in range(4)]
            agents = (pids[0][1], pids[2][1])
            run = Running(supervisor, tuple(rank for rank, _ in pids), agents, local.home)
            assert until(lambda: run.states == ["Running"] * 4)
            yield run
        finally:
            supervisor.kill()


def kill(*pids: int) -> None:
    """Sends SIGKILL, and waits until the processes have ended; they may be zombies of a stopped supervisor."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: all((stat := process_stat(pid)) is None or stat.ended for pid in pids))


@pytest.fixture
def stopped(running: Running) -> Iterator[Running]:
    """The run, while its supervisor is stopped."""
    running.supervisor.send_signal(signal.SIGSTOP)
    yield running
    running.supervisor.send_signal(signal.SIGCONT)


class TestASupervisorThatWasKilled:
    def test_leaves_only_lost_ranks_although_their_processes_have_not_ended_yet(self, running: Running) -> None:
        for agent in running.agents:
            os.kill(agent, signal.SIGSTOP)  # it would end the ranks two seconds later
        running.supervisor.kill()
        running.supervisor.wait()
        status = running.status
        assert all(ProcessId(rank).exists() for rank in running.ranks)
        for agent in running.agents:
            os.kill(agent, signal.SIGCONT)
        assert (status.phase, [row.state for row in status.ranks]) == (Phase.LOST, ["Lost"] * 4)
        assert status.failure is not None and status.failure.kind is FailureKind.LOST
        assert f"pid {running.supervisor.pid}" in status.failure.message

    def test_with_all_its_ranks_leaves_a_lost_run(self, running: Running) -> None:
        kill(running.supervisor.pid, *running.agents, *running.ranks)
        assert (running.status.phase, running.states) == (Phase.LOST, ["Lost"] * 4)
        assert [status.phase for status in LocalBackend(running.home).list()] == [Phase.LOST]

    @pytest.mark.parametrize("running", [FORKED], indirect=True)
    def test_counts_as_ended_although_a_child_of_it_holds_the_lock(self, running: Running, local: Local) -> None:
        local.path("fork").touch()
        child = int(wait_for(local.path("child")))
        try:
            kill(running.supervisor.pid)
            assert ProcessId(child).exists()
            assert (running.status.phase, running.states) == (Phase.LOST, ["Lost"] * 4)
        finally:
            os.kill(child, signal.SIGKILL)
            LocalBackend(running.home).cancel("job")  # the child holds the agents' lifeline as well
        assert until(lambda: living(local.directory) == [])


class TestARunningRank:
    def test_has_the_pid_of_its_process(self, running: Running) -> None:
        assert tuple(row.pid for row in running.status.ranks) == running.ranks
        words = [Path(sys.executable).parent / "stepset", "status", "job"]
        env = {**os.environ, "STEPSET_HOME": str(running.home)}
        page = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
        rows = [line.split() for line in page.splitlines() if line.startswith("rank ")]
        assert [row[row.index("Running") - 1] for row in rows] == [str(pid) for pid in running.ranks]


class TestARankThatWasKilled:
    def test_is_not_running_while_its_supervisor_is_stopped(self, stopped: Running) -> None:
        kill(stopped.ranks[1])
        assert stopped.status.ranks[1].pid is None
        assert (stopped.status.phase, stopped.states) == (Phase.RUNNING, ["Running", "Ended", "Running", "Running"])

    def test_is_not_running_when_its_agent_was_killed(self, stopped: Running) -> None:
        kill(stopped.agents[1])
        assert stopped.states == ["Running", "Running", "Ended", "Ended"]

    def test_is_not_counted_by_the_command_line(self, stopped: Running) -> None:
        kill(*stopped.agents, *stopped.ranks)
        words = [Path(sys.executable).parent / "stepset", "status", "job"]
        env = {**os.environ, "STEPSET_HOME": str(stopped.home)}
        page = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
        assert "0/4 ranks running" in page
        assert page.count("  Ended") == 4

    def test_is_never_running_afterwards_and_fails_the_run(self, running: Running) -> None:
        kill(running.ranks[3])
        seen = []
        while not (status := running.status).phase.final:
            seen.append(status.ranks[3].state)
            time.sleep(0.01)
        assert set(seen) <= {"Ended", "Failed"}
        assert (status.phase, status.ranks[3].state) == (Phase.FAILED, "Failed")
        assert status.failure is not None and status.failure.rank == 3


class TestAProcess:
    def test_is_not_another_that_got_its_pid(self) -> None:
        own = ProcessId.of(os.getpid())
        assert own is not None and own.started is not None and own.exists()
        assert not replace(own, started=own.started - 1).exists()

    def test_that_has_ended_does_not_exist_although_its_parent_has_not_waited_for_it(self) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as child:
            seen = ProcessId(child.pid)
            assert until(lambda: not seen.exists())
            assert (stat := process_stat(child.pid)) is not None and stat.state == "Z"

    @pytest.mark.parametrize("pid", [None, "1", 0, -1, 1 << 40, 1.5])
    def test_does_not_exist_for_an_invalid_pid(self, pid: object) -> None:
        assert ProcessId.of(pid) is None

    def test_with_an_unusual_name_is_parsed(self, tmp_path: Path) -> None:
        (program := tmp_path / "a) Z (b").symlink_to("/bin/sleep")
        with subprocess.Popen([program, "600"]) as child:
            assert until(lambda: (stat := process_stat(child.pid)) is not None and stat.name == "a) Z (b")
            stat = process_stat(child.pid)
            assert stat is not None and (stat.parent, stat.ended) == (os.getpid(), False)
            child.kill()


class TestARecord:
    """A record in the run's directory, written by this version or an earlier one."""

    ROWS = (RankStatus("rank 0", 0, "node-0", state="Running"), RankStatus("rank 1", 1, "node-1", state="Pending"))

    @pytest.fixture
    def run(self, tmp_path: Path) -> RunDir:
        """A run of this process, whose rank 0 is a process that does not exist."""
        status = RunStatus("digits-1", "digits", "local", Phase.RUNNING, ranks=self.ROWS)
        run, _ = RunStore(tmp_path).create(status, TrainingJob(name="digits", framework="plain", command=["true"]))
        own = ProcessId.of(os.getpid())
        assert own is not None
        run.write_processes({"node-0": own, "rank 0": ProcessId(own.pid, 1)})
        return run

    def test_is_valid_if_the_processes_exist(self, run: RunDir) -> None:
        own = ProcessId.of(os.getpid())
        assert own is not None
        run.write_processes({"node-0": own, "rank 0": own})
        assert [row.state for row in run.read().ranks] == ["Running", "Pending"]

    def test_is_corrected_if_a_process_does_not_exist(self, run: RunDir) -> None:
        assert [row.state for row in run.read().ranks] == ["Ended", "Pending"]

    def test_of_an_earlier_version_is_valid_while_the_lock_is_held(self, run: RunDir) -> None:
        (run.path / SUPERVISOR_FILE).write_text(json.dumps({"pid": 1 << 21, "started": time.time()}))
        (run.path / PROCESSES_FILE).unlink()
        assert (run.read().phase, [row.state for row in run.read().ranks]) == (Phase.RUNNING, ["Running", "Pending"])

    @pytest.mark.parametrize("space", ["another-boot pid:[4026531836]", "", None])
    def test_of_pids_of_another_machine_or_namespace_is_valid(self, run: RunDir, space: str | None) -> None:
        record = json.loads((run.path / SUPERVISOR_FILE).read_text())
        assert record["pid_space"] == pid_space()
        (run.path / SUPERVISOR_FILE).write_text(json.dumps({**record, "pid": 1 << 21, "pid_space": space}))
        assert (run.read().phase, [row.state for row in run.read().ranks]) == (Phase.RUNNING, ["Running", "Pending"])
        own = ProcessId.of(os.getpid())
        assert own is not None
        run.write_processes({"node-0": own, "rank 0": own})
        assert run.read().ranks[0].pid is None  # the pid identifies no process of this machine or namespace

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"rank 0": 1}', '{"rank 0": ["x", 1]}', '{"rank 0": [0, 1]}'])
    def test_that_cannot_be_read_changes_no_state(self, run: RunDir, text: str) -> None:
        (run.path / PROCESSES_FILE).write_text(text)
        assert [row.state for row in run.read().ranks] == ["Running", "Pending"]

    def test_of_a_supervisor_whose_pid_belongs_to_another_process_is_lost(self, run: RunDir) -> None:
        record = json.loads((run.path / SUPERVISOR_FILE).read_text())
        (run.path / SUPERVISOR_FILE).write_text(json.dumps({**record, "start_ticks": record["start_ticks"] - 1}))
        assert (run.read().phase, [row.state for row in run.read().ranks]) == (Phase.LOST, ["Lost", "Lost"])


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Stopped"])
def test_the_recorded_end_of_a_rank_does_not_change(state: str) -> None:
    status = RunStatus("digits-1", "digits", "local", ranks=(RankStatus("rank 0", 0, "node-0", state=state),))
    assert with_processes(status, {"rank 0": ProcessId(os.getpid(), 1)}) == status
    assert with_lost_ranks(status) == status


@pytest.mark.parametrize("secret", [False, True])
def test_the_current_state_of_a_progress_bar_is_the_last_line_of_its_rank(
    local: Local, monkeypatch: pytest.MonkeyPatch, secret: bool
) -> None:
    script = """
        import os, sys, time
        if os.environ["RANK"] == "1":
            time.sleep(3)
            print("epoch 1", flush=True)
        for step in range(3):
            print(f"\\r{step}/6 {os.environ.get('TOKEN', '')}", end="", file=sys.stderr, flush=True)
            time.sleep(1.1)  # the agent reports at most one state of a bar per second
        time.sleep(600)
    """
    monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", "hunter2hunter2")
    env = {"TOKEN": {"secret": "hub", "key": "token"}} if secret else {}
    torch = {"kind": "torch", "launcher": "none"}
    handle = local.start(script, framework=torch, num_nodes=1, procs_per_node=2, env=env)

    def shown() -> list[str]:
        return [row.last_line.strip() for row in local.backend.status(handle.name).ranks]

    try:
        # The agents redact only complete lines.
        assert until(lambda: shown() == (["", "epoch 1"] if secret else ["2/6", "2/6"])), shown()
    finally:
        handle.cancel()
        handle.wait()
    assert not any("hunter2" in row.last_line for status in local.listener.statuses for row in status.ranks)
