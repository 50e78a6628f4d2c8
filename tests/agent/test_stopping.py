"""Stopping: ranks have time to save a checkpoint, and no process remains."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.launchers import TORCHRUN
from tests.agent.pods import Both, Pod
from tests.waiting import until

SAVES = "save() { sleep 0.5; echo saved; exit 0; }; trap save TERM INT; echo ready; while :; do sleep 0.1; done"
IGNORES = "trap '' TERM INT; echo ready; while :; do sleep 0.1; done"
KEEPS_RUNNING = "trap 'echo stopping' TERM; touch up; echo ready; while :; do sleep 0.1; done"
DETACHES = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' & echo ready; wait"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_ranks_have_time_to_save(both: Both, number: int) -> None:
    with both.start(SAVES, 1) as running:
        running.wait_for_line(b"ready")
        running.signal(number)
        ended = running.end()
        assert ended.lines("rank 0")[-1] == b"saved"
        assert running.all_ended()


def test_a_rank_that_saves_and_exits_on_a_stop_signal_has_not_succeeded(pod: Pod) -> None:
    with pod.start_ranks(f"echo 1 > $STEPSET_RESULT_FILE; {SAVES}") as running:
        running.wait_for_line(b"ready")
        running.signal(signal.SIGTERM)
        ended = running.end()
    assert ended.exit_code == 128 + signal.SIGTERM
    assert ended.event("exited")["exit_code"] == 0
    assert ended.events("failed") == ended.events("result") == []
    assert ended.log == b""


def test_a_stop_signal_after_the_end_changes_nothing(pod: Pod) -> None:
    with pod.start_ranks("echo 1 > $STEPSET_RESULT_FILE; setsid sleep 1000 & exit 0") as running:
        running.wait_for_line(b'"exited"')
        running.signal(signal.SIGTERM)
        ended = running.end()
    assert (ended.exit_code, ended.log) == (0, b"1\n")


def test_ranks_that_a_stop_ends_have_not_failed(both: Both) -> None:
    with both.start("trap 'echo Traceback; exit 7' TERM; echo ready; while :; do sleep 0.1; done", 2) as running:
        running.wait_for_line(b"ready", 2)
        running.signal(signal.SIGTERM)
        ended = running.end()
    assert ended.events("failed") == []
    assert ended.log == b""
    assert ended.exit_code == 128 + signal.SIGTERM


def test_a_failure_before_the_stop_is_the_verdict(pod: Pod) -> None:
    fails = "[ $RANK = 1 ] && { until [ -e up ]; do sleep 0.02; done; exit 5; }"
    with pod.start_ranks(f"{fails}; {KEEPS_RUNNING}", 2, work_dir=str(pod.directory)) as running:
        running.wait_for_line(b'"failed"')
        running.signal(signal.SIGTERM)
        running.wait_for_line(b"stopping")  # two simultaneous signals could be merged into one
        running.signal(signal.SIGTERM)
        ended = running.end()
    assert (ended.verdict["rank"], ended.verdict["exit_code"], ended.exit_code) == (1, 5, 5)


def test_ranks_that_ignore_the_signal_are_killed_after_the_grace_period(both: Both) -> None:
    with both.start(IGNORES, 2, grace=0.5) as running:
        running.wait_for_line(b"ready", 2)
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert ended.exit_code == 128 + signal.SIGTERM
        assert [e["signal"] for e in ended.events("exited")] == [signal.SIGKILL, signal.SIGKILL]
        assert running.all_ended()


def test_a_second_signal_kills_at_once(both: Both) -> None:
    with both.start(KEEPS_RUNNING, 1, grace=1000, work_dir=str(both.pod.directory)) as running:
        running.wait_for_line(b"ready")
        running.signal(signal.SIGTERM)
        running.wait_for_line(b"stopping")
        running.signal(signal.SIGTERM)
        running.end()
        assert running.all_ended()


def test_a_broken_lifeline_ends_all_processes_also_detached_ones(both: Both) -> None:
    with both.start(DETACHES, 2, grace=1000, lifeline=True) as running:
        running.wait_for_line(b"ready", 2)
        assert until(lambda: len(running.alive()) >= 5)
        running.close_lifeline()
        ended = running.end()
        assert ended.exit_code == 128 + signal.SIGTERM
        assert running.alive() == []


def test_an_open_lifeline_does_nothing(pod: Pod) -> None:
    with pod.start("/bin/sh", "-c", "sleep 0.3; echo done", processes=1, lifeline=True) as running:
        assert running.wait_for_line(b"[rank 0]") == b"[rank 0] done\n"


def test_standard_input_is_a_lifeline_only_if_configured(pod: Pod) -> None:
    assert pod.run("/bin/sh", "-c", "sleep 0.3; echo done", processes=1).exit_code == 0


def test_a_closed_reader_ends_all_processes(both: Both) -> None:
    with both.start("echo ready; while :; do echo on and on; sleep 0.1; done", 1) as running:
        running.wait_for_line(b"ready")
        running.close_output()
        running.process.wait(30)
        assert running.all_ended()


def test_no_rank_outlives_an_agent_that_is_killed(both: Both) -> None:
    with both.start("trap '' TERM; echo ready; while :; do sleep 1; done", 2) as running:
        running.wait_for_line(b"ready", 2)
        running.signal(signal.SIGKILL)
        assert running.all_ended()


def test_the_agent_does_not_wait_for_a_launcher_whose_ranks_have_ended(pod: Pod) -> None:
    with pod.start_launched("exit 0", 2, env={"WAITS": "1"}, grace=600) as running:
        running.wait_for_line(b'"exited"', 2)
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert ended.exit_code == 128 + signal.SIGTERM
        assert running.all_ended()


def test_ranks_end_when_their_launcher_is_killed(pod: Pod) -> None:
    with pod.start_launched("trap '' TERM; echo pid $PPID $$; while :; do sleep 1; done", 2) as running:
        running.wait_for_line(b"[rank 0] pid")
        (launcher,) = [pid for pid in running.alive() if _argument(pid, 3).endswith("launcher.py")]
        os.kill(launcher, signal.SIGKILL)
        ended = running.end()
        assert ended.exit_code == 128 + signal.SIGKILL
        assert running.all_ended()


def test_a_wrapped_rank_ends_with_its_rank_process(pod: Pod) -> None:
    with pod.start_launched("echo pid $PPID; exec sleep 1000", 1) as running:
        line = running.wait_for_line(b"[rank 0] pid")
        os.kill(int(line.split()[-1]), signal.SIGKILL)
        ended = running.end()
        assert ended.event("exited")["signal"] == signal.SIGKILL
        assert ended.exit_code == 1
        assert running.alive() == []


def test_user_signals_are_forwarded_to_the_program(both: Both) -> None:
    with both.start("trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.1; done", 1) as running:
        running.wait_for_line(b"ready")
        if any(_argument(pid, 3).endswith("launcher.py") for pid in running.alive()):
            (rank,) = [pid for pid in running.alive() if "rank" in _argument(pid, 4)]
            os.kill(rank, signal.SIGUSR1)
        else:
            running.signal(signal.SIGUSR1)
        ended = running.end()
    assert ended.lines("rank 0")[-1] == b"usr1"
    assert ended.exit_code == 0


def test_the_agent_sends_no_signal_to_children_of_a_training_program(pod: Pod) -> None:
    # A data loader that a signal kills makes the program fail while it saves.
    program = """if True:
        import os, signal, subprocess, sys, time
        loader = subprocess.Popen(["sleep", "1000"])
        def save(*_):
            time.sleep(0.3)
            print("loader running:", loader.poll() is None)
            loader.kill()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready")
        while True:
            time.sleep(1)
    """
    wrapped = {"launcher": pod.launcher(TORCHRUN, 1), "program": ["python3"], "command_len": 1}
    for config in ({"processes": 1}, wrapped):
        with pod.start("python3", "-c", program, **config) as running:
            running.wait_for_line(b"ready")
            running.signal(signal.SIGTERM)
            assert running.end().lines("rank 0") == [b"ready", b"loader running: True"]


def test_a_data_loader_that_outlives_its_stopped_rank_does_not_delay_the_end(pod: Pod) -> None:
    loader = "trap '' TERM; printf pt_data_worker > /proc/$$/comm; echo ready; while :; do sleep 0.1; done"
    program = f"import subprocess; subprocess.Popen(['sh', '-c', {loader!r}]).wait()"
    wrapped = {"launcher": pod.launcher(TORCHRUN, 1), "program": ["python3"], "command_len": 1}
    for config in ({"processes": 1}, wrapped):
        with pod.start("python3", "-c", program, grace=1000, **config) as running:
            running.wait_for_line(b"ready")
            running.signal(signal.SIGTERM)
            running.end()
            assert running.all_ended()


def test_a_program_of_a_shell_has_time_to_save_although_the_shell_ends(both: Both) -> None:
    inner = SAVES.replace("sleep 0.5", "sleep 1.2")
    with both.start(f"/bin/sh -c '{inner}' inner; echo never", 1) as running:
        running.wait_for_line(b"ready")
        running.signal(signal.SIGTERM)
        assert running.end().lines("rank 0")[-1] == b"saved"


def test_processes_that_a_finished_command_leaves_have_time_to_end(pod: Pod) -> None:
    file = pod.directory / "saved"
    pod.run("/bin/sh", "-c", f"setsid sh -c 'sleep 0.1; echo saved > {file}' > /dev/null 2>&1 & :", processes=1)
    assert until(file.exists)


def _argument(pid: int, number: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[number].decode() if number < len(words) else ""
