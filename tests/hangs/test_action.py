"""The agent ends a pod that contains the cause of a hang, and samples ranks before it stops them."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.hangs.causes import cause_of
from tests.agent.pods import Pod
from tests.hangs.conftest import Ranks, free_port, main_process, stack

Start = Callable[..., Ranks]
SOON = {"after": 1, "first": 2}
LATER = {"after": 9, "first": 9}
SLEEPS = "import time\ndef planted(): time.sleep(1000)\nplanted()"
PROGRAM = str(Path(__file__).parent / "train.py")
HELD = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('on', flush=True)\n"


def stops(out: bytes) -> dict[Any, dict[str, Any]]:
    """Returns the evidence of each rank that the agent has collected before a stop."""
    lines = (line.partition(b"] ")[2] for line in out.split(b"\n") if line.startswith(b'[stepset] {"event": "stalled"'))
    events = [json.loads(line) for line in lines]
    return {event.get("rank"): event for event in events if event.get("stop")}


def pause(ranks: Ranks, seconds: float = 4) -> None:
    """Waits until the pod has been without progress for long enough, and no longer than its first limit."""
    ranks.running[0].wait_for_line(b"] on")
    time.sleep(seconds)


@pytest.mark.parametrize("action", ["fail", "restart"])
def test_the_agent_of_a_pod_with_all_ranks_ends_the_hang(start: Start, action: str) -> None:
    ended = start(sys.executable, "-c", SLEEPS, hang={**SOON, "action": action}).running[0].end()
    assert ended.exit_code == 74
    assert ended.verdict["kind"] == "UserError"
    assert ended.verdict["rank"] == 0
    assert ended.verdict["error"] == "no progress; rank 0 waits in planted (<string>:2)"
    assert set(stops(ended.out)) == {0, 1}
    assert ended.out.index(b'"stalled"') < ended.out.index(b'"failed"') < ended.out.index(b'"exited"')
    assert b"resumed" not in ended.out


@pytest.mark.frameworks
def test_a_rank_that_is_blocked_in_the_kernel_is_a_failure_of_the_infrastructure(start: Start, tmp_path: Path) -> None:
    # The parent of vfork waits, in state D, until the child has opened the FIFO.
    script = (
        f"import os\nos.mkfifo({str(tmp_path / 'fifo')!r})\n"
        f"def planted(): os.posix_spawn('/bin/true', ['true'], {{}},"
        f" file_actions=[(os.POSIX_SPAWN_OPEN, 0, {str(tmp_path / 'fifo')!r}, os.O_RDONLY, 0)])\nplanted()"
    )
    ended = start(sys.executable, "-c", script, ranks=1, hang={**SOON, "action": "fail"}).running[0].end()
    assert ended.exit_code == 75
    assert ended.verdict["kind"] == "Infrastructure"
    assert ended.verdict["error"] == "no progress; rank 0 is blocked in the kernel"  # it answers no signal


@pytest.mark.frameworks
def test_a_hang_is_only_reported_by_default(start: Start) -> None:
    ranks = start(sys.executable, "-c", SLEEPS, hang=SOON)
    ranks.stalled(0, 1)
    assert ranks.stalled(0, 1)[0]["again"] == 1
    assert ranks.running[0].process.poll() is None


@pytest.mark.frameworks
def test_progress_after_the_report_keeps_the_run(start: Start) -> None:
    script = "import time\nprint('on', flush=True)\ntime.sleep(9)\nprint('again', flush=True)"
    ended = start(sys.executable, "-c", script, ranks=1, hang={**SOON, "action": "fail"}).running[0].end()
    if not ended.events("stalled"):
        pytest.skip("the machine was too slow to sample the rank in time")
    assert ended.exit_code == 0
    assert ended.events("resumed")


def of_mpi(call: str = "", **fields: Any) -> dict[str, Any]:
    """What was sampled of a rank of an MPI program."""
    process = {"kind": "rank", "state": "R" if call else "S", "busy": False, "changed": False, "gil": False}
    return {"processes": [{**process, "threads": [], **({"call": call} if call else {}), **fields}], "collectives": []}


@pytest.mark.parametrize(
    ("ranks", "whole", "rank"),
    [
        ([of_mpi("MPI_Barrier"), of_mpi()], True, 1),
        ([of_mpi("MPI_Barrier"), of_mpi()], False, None),  # it may wait for a rank of another pod
        ([of_mpi("MPI_Barrier"), of_mpi(state="R")], True, None),
        ([of_mpi("MPI_Barrier", busy=True), of_mpi()], True, None),
        ([of_mpi("MPI_Barrier"), of_mpi("MPI_Barrier")], False, None),
    ],
)
def test_ranks_that_poll_in_mpi_do_not_work(ranks: list[dict[str, Any]], whole: bool, rank: int | None) -> None:
    found = cause_of(dict(enumerate(ranks)), whole=whole)
    assert (found and found["rank"]) == rank


@pytest.mark.frameworks
def test_a_rank_that_works_is_not_ended(start: Start) -> None:
    script = "while True: pass"
    ranks = start(sys.executable, "-c", script, ranks=1, hang={**SOON, "action": "fail"})
    ranks.stalled(0)
    assert ranks.stalled(0)[0]["again"] == 1
    assert ranks.running[0].process.poll() is None


@pytest.mark.frameworks
def test_ranks_without_torch_may_wait_for_ranks_of_other_pods(start: Start) -> None:
    variables = {"RANK": "{rank}", "WORLD_SIZE": "4"}
    config = {"processes": 2, "process_env": variables, "hang": {**SOON, "action": "fail"}}
    ranks = start(sys.executable, "-c", SLEEPS, **config)
    ranks.stalled(0, 1)
    assert ranks.stalled(0, 1)[0]["again"] == 1
    assert ranks.running[0].process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_during_a_pause_shows_the_stacks_before_the_ranks_end(start: Start, number: int) -> None:
    ranks = start(sys.executable, "-c", f"print('on', flush=True)\n{SLEEPS}", hang=LATER, grace=20)
    pause(ranks)
    began = time.monotonic()
    ranks.running[0].signal(number)
    ended = ranks.running[0].end()
    assert time.monotonic() - began < 15
    assert ended.exit_code == 128 + number
    found = stops(ended.out)
    assert [stack(main_process(found[rank])) for rank in (0, 1)] == [["planted", "<module>"]] * 2
    assert ended.out.index(b'"stalled"') < ended.out.index(b'"exited"')


def test_a_stop_without_a_pause_takes_no_samples(start: Start) -> None:
    script = "import time\nprint('on', flush=True)\nwhile True:\n    time.sleep(0.2)\n    print('step', flush=True)"
    ranks = start(sys.executable, "-c", script, hang={"after": 60, "first": 60}, grace=20)
    pause(ranks)
    began = time.monotonic()
    ranks.running[0].signal(signal.SIGTERM)
    ended = ranks.running[0].end()
    assert time.monotonic() - began < 1.5
    assert not ended.events("stalled")


@pytest.mark.frameworks
def test_ranks_are_killed_in_time_even_if_a_sample_blocks(start: Start) -> None:
    # The rank writes to the file of its stacks without an end, and ignores SIGTERM.
    script = HELD + (
        "import threading\n"
        "name = lambda fd: os.readlink(f'/proc/self/fd/{fd}')\n"
        "(file,) = [int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')"
        " and 'stepset-stacks' in name(fd)]\n"
        "def fill():\n"
        "    while True:\n"
        "        os.ftruncate(file, 0); os.write(file, b'x' * 100)\n"
        "threading.Thread(target=fill, daemon=True).start()\ntime.sleep(1000)"
    )
    ranks = start(sys.executable, "-c", script, ranks=1, hang=LATER, grace=6)
    pause(ranks)
    began = time.monotonic()
    ranks.running[0].signal(signal.SIGTERM)
    ended = ranks.running[0].end()
    assert 5 < time.monotonic() - began < 9
    assert ended.exit_code == 128 + signal.SIGTERM


@pytest.mark.frameworks
def test_a_second_signal_kills_while_a_sample_is_taken(start: Start) -> None:
    ranks = start(sys.executable, "-c", f"{HELD}time.sleep(1000)", hang=LATER, grace=60)
    pause(ranks)
    ranks.running[0].signal(signal.SIGTERM)
    time.sleep(0.2)
    began = time.monotonic()
    ranks.running[0].signal(signal.SIGTERM)
    ranks.running[0].end()
    assert time.monotonic() - began < 4


TIMES_OUT = (
    "import os, sys, time\nprint('on', flush=True)\n"
    "def planted(): time.sleep(1000)\n"
    "if os.environ['RANK'] == '1': planted()\n"
    "time.sleep(4)\nraise RuntimeError('Timed out waiting 4000ms for recv operation to complete')"
)


@pytest.mark.parametrize("launcher", [False, True])
def test_when_a_rank_times_out_the_others_are_sampled_before_they_are_stopped(start: Start, launcher: bool) -> None:
    config: dict[str, Any] = {}
    if launcher:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        config = {"launcher": [*torchrun, "--no-python"], "program": [sys.executable, "-u"], "command_len": 1}
    command = ("torchrun", "-c", TIMES_OUT) if launcher else (sys.executable, "-c", TIMES_OUT)
    ended = start(*command, hang={"after": 2, "first": 6}, grace=20, **config).running[0].end()
    assert ended.verdict["rank"] == 0
    assert ended.verdict["error"].startswith("RuntimeError: Timed out")
    found = stops(ended.out)
    assert stack(main_process(found[1])) == ["planted", "<module>"]
    assert found[1]["silent"] >= 3
    assert b"resumed" not in ended.out.rpartition(b'"stop": true')[2]


@pytest.mark.frameworks
def test_another_error_after_a_pause_takes_no_samples(start: Start) -> None:
    script = TIMES_OUT.replace("Timed out", "Bad value")
    ended = start(sys.executable, "-c", script, hang={"after": 2, "first": 6}, grace=20).running[0].end()
    assert ended.verdict["rank"] == 0
    assert not ended.events("stalled")


@pytest.mark.frameworks
@pytest.mark.parametrize("case", ["data", "lock"])
def test_the_pod_of_the_guilty_rank_ends_and_the_waiting_pod_does_not(tmp_path: Path, case: str) -> None:
    port = str(free_port())
    hang = {"after": 4, "first": 120, "action": "fail"}

    def pod(node: int) -> Any:
        directory = tmp_path / str(node)
        directory.mkdir()
        variables = {"RANK": str(node), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        config = {"processes": 1, "process_env": {**variables, "MASTER_PORT": port}, "grace": 10, "hang": hang}
        env = {"STEPSET_NODE_RANK": str(node)}
        return Pod(directory).start(sys.executable, PROGRAM, case, env=env, **config)

    with pod(0) as waiting, pod(1) as guilty:
        ended = guilty.end()
        assert ended.exit_code == 74
        assert ended.verdict["error"].startswith("no progress; rank 1 waits in ")
        assert waiting.end().exit_code not in (0, 74, 75)  # its rank loses the connection
