"""The hook in each Python process of a rank: it answers, and the program does not notice it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.pythons import interpreters

from stepset.agent.hangs.processes import read_process, send
from tests.agent.pods import AGENT, Pod, Running

HANG = {"after": 1000, "first": 1000}
SLEEPS = "import time\ndef here():\n    print('sleeps', flush=True)\n    time.sleep(1000)\n"
PYTHONS = [str(each.path) for each in interpreters((2, 7))]


def stacks(pod: Pod, *options: str) -> dict[str, Any]:
    """Returns what the mode `stacks` prints."""
    command = [pod.python, "-I", "-S", str(AGENT), "stacks", "--dir", str(pod.dir), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def start(pod: Pod, *command: str, waits_for: str = "sleeps", **more: Any) -> Running:
    """Starts a rank, and waits until it has printed a line."""
    running = pod.start(*command, processes=1, hang=HANG, grace=1, **more)
    running.wait_for_line(waits_for.encode())
    return running


def processes(pod: Pod) -> list[dict[str, Any]]:
    """Returns the processes of the pod's only rank."""
    (rank,) = stacks(pod)["ranks"]
    found: list[dict[str, Any]] = rank["processes"]
    return found


def functions(process: dict[str, Any]) -> list[str]:
    """Returns the functions on the stack of a process's main thread, innermost first."""
    return [frame[0] for frame in process["threads"][0]["frames"]]


def run(pod: Pod, script: str, *options: str, python: str = sys.executable, **more: Any) -> list[str]:
    """Runs a Python program as a rank, and returns its lines."""
    config = {"hang": HANG, **more}
    ended = pod.run(python, *options, "-c", script, processes=1, **config)
    assert not ended.err
    return [line.decode() for line in ended.lines("rank 0")]


def test_a_process_reports_the_stack_of_its_main_thread(any_pod: Pod) -> None:
    with start(any_pod, sys.executable, "-c", SLEEPS + "here()"):
        (process,) = processes(any_pod)
    assert process["kind"] == "rank"
    assert process["state"] == "S"
    assert functions(process) == ["here", "<module>"]
    assert process["threads"][0]["frames"][0][1:] == ["<string>", 4]
    assert not process["busy"]
    assert "why" not in process


def test_all_threads_are_reported_and_the_main_thread_is_first(pod: Pod) -> None:
    threads = (
        "import threading\nfor _ in range(3): threading.Thread(target=time.sleep, args=(999,), daemon=True).start()\n"
    )
    with start(pod, sys.executable, "-c", SLEEPS + threads + "here()"):
        (process,) = processes(pod)
    assert [thread["name"] for thread in process["threads"]] == ["main", "", "", ""]
    assert functions(process) == ["here", "<module>"]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_version_of_python_starts_and_its_program_does_not_notice_the_hook(pod: Pod, python: str) -> None:
    script = "import sys, os; print(sys.path); print(sorted(sys.modules)); print(os.environ.get('PYTHONPATH'))"
    with_hook, without = run(pod, script, python=python), run(pod, script, python=python, hang=None)
    assert with_hook[0] == without[0]
    added = {"_thread", "faulthandler", "posix", "sitecustomize", "thread"}
    assert set(eval(with_hook[1])) - set(eval(without[1])) <= added
    assert with_hook[2] == str(pod.dir / "hook")


def test_a_job_without_hang_has_no_hook(pod: Pod) -> None:
    assert run(pod, "import os; print(os.environ.get('PYTHONPATH'))", hang=None) == ["None"]
    assert sorted(path.name for path in pod.dir.iterdir()) == ["out"]


def test_the_directory_is_private(pod: Pod) -> None:
    run(pod, "pass")
    assert [path.stat().st_mode & 0o777 for path in (pod.dir, pod.dir / "hook")] == [0o700, 0o700]


CUSTOM = "import os, sys\nprint('custom', [p for p in sys.path if 'hook' in p], flush=True)\n"


def test_the_own_sitecustomize_runs_and_is_the_module(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CUSTOM + "mine = 1")
    script = SLEEPS + "import sitecustomize; print(sitecustomize.mine, sitecustomize.__file__); here()"
    with start(pod, sys.executable, "-c", script, env={"PYTHONPATH": str(tmp_path)}) as running:
        assert functions(processes(pod)[0]) == ["here", "<module>"]
        running.signal(15)
        ended = running.end()
    assert ended.lines("rank 0")[:2] == [b"custom []", b"1 " + os.fsencode(tmp_path / "sitecustomize.py")]


def test_an_error_of_the_own_sitecustomize_is_reported_as_without_the_hook(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import module_that_does_not_exist")
    found = [run(pod, "print(1)", env={"PYTHONPATH": str(tmp_path)}, hang=hang) for hang in (HANG, None)]
    assert found[0] == found[1]
    assert "module_that_does_not_exist" in "".join(found[0])


@pytest.mark.parametrize("option", ["-I", "-S", "-uE"])
def test_options_of_python_that_turn_the_hook_off_are_the_reason(pod: Pod, option: str) -> None:
    with start(pod, sys.executable, option, "-c", SLEEPS + "here()"):
        (process,) = processes(pod)
    assert process["why"] == f"Python runs with -{option[-1]} and ignores the hook"
    assert process["threads"] == []
    assert process["state"] == "S"


def test_a_changed_pythonpath_is_the_reason(pod: Pod) -> None:
    with start(pod, "/bin/sh", "-c", f'PYTHONPATH=/elsewhere exec {sys.executable} -c "$0"', SLEEPS + "here()"):
        (process,) = processes(pod)
    assert process["why"] == "its PYTHONPATH does not contain the hook"


def test_the_user_s_pythonpath_follows_and_is_used(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('mine')")
    assert run(pod, "import mine", env={"PYTHONPATH": str(tmp_path)}) == ["mine"]


def test_a_forked_process_answers_with_its_own_stack(pod: Pod) -> None:
    script = "import os\ndef child(): here()\ndef parent(): os.wait()\nparent() if os.fork() else child()"
    with start(pod, sys.executable, "-c", SLEEPS + script):
        parent, child = processes(pod)
    assert functions(parent) == ["parent", "<module>"]
    assert functions(child) == ["here", "child", "<module>"]
    assert [parent["kind"], child["kind"]] == ["rank", "worker"]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_process_of_multiprocessing_is_a_worker_and_answers(pod: Pod, tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        SLEEPS + "if __name__ == '__main__':\n    import multiprocessing\n"
        f"    p = multiprocessing.get_context('{method}').Process(target=here)\n    p.start(); p.join()\n"
    )
    with start(pod, sys.executable, str(program)):
        found = processes(pod)
    (worker,) = [each for each in found if each["threads"] and "here" in functions(each)]
    assert worker["kind"] == "worker"
    assert found[0]["kind"] == "rank"
    assert "join" in functions(found[0])


def test_a_program_that_replaces_python_is_not_killed(pod: Pod) -> None:
    script = "import os; print('sleeps', flush=True); os.execv('/bin/sleep', ['sleep', '1000'])"
    with start(pod, sys.executable, "-c", script) as running:
        found = []
        while not found or found[0]["name"] != "sleep":
            found = processes(pod)
        assert running.process.poll() is None
    assert found[0]["why"] == "sleep is not Python"


def test_a_program_that_closes_all_files_is_not_killed(pod: Pod) -> None:
    script = SLEEPS + "import os; os.closerange(3, 100); [os.open('/dev/null', 0) for _ in range(9)]; here()"
    with start(pod, sys.executable, "-c", script):
        (process,) = processes(pod)
        (again,) = processes(pod)
    assert "closed the hook's file" in process["why"]
    assert again["pid"] == process["pid"]


def test_a_shell_before_python_is_a_launcher(pod: Pod) -> None:
    with start(pod, "/bin/sh", "-c", f'{sys.executable} -c "$0"; true', SLEEPS + "here()"):
        launcher, rank = processes(pod)
    assert [launcher["kind"], rank["kind"]] == ["launcher", "rank"]
    assert functions(rank) == ["here", "<module>"]


def test_a_stopped_process_is_not_asked(pod: Pod) -> None:
    script = SLEEPS + "import os, signal; print('sleeps', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    with start(pod, sys.executable, "-c", script):
        found = processes(pod)
        while found[0]["state"] != "T":
            found = processes(pod)
    assert found[0]["why"] == "stopped by a signal"


def test_a_process_with_the_pid_of_a_terminated_process_gets_no_signal() -> None:
    script = "import signal, sys, time; signal.signal(50, lambda *_: sys.exit(7)); print(1, flush=True); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        process = read_process(program.pid)
        assert process is not None
        process.started -= 1  # as if the process had terminated, and another one had its PID
        send(process, 50)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.5)
        process.started += 1
        send(process, 50)
        assert program.wait() == 7


def test_the_stack_of_a_process_that_holds_the_gil_in_c_is_reported(pod: Pod) -> None:
    # sleep(3) would return as soon as a signal arrives.
    script = (
        "import ctypes; mutex = ctypes.create_string_buffer(64); lock = ctypes.PyDLL(None).pthread_mutex_lock\n"
        "def held(): lock(mutex); print('sleeps', flush=True); lock(mutex)\nheld()"
    )
    with start(pod, sys.executable, "-c", script):
        (process,) = processes(pod)
    assert functions(process) == ["held", "<module>"]


def test_values_of_secrets_do_not_appear(pod: Pod) -> None:
    script = "def a_secret_value(): here()\na_secret_value()"
    env = {"TOKEN": "a_secret_value"}
    with start(pod, sys.executable, "-c", SLEEPS + script, env=env, secrets=["TOKEN"]):
        (process,) = processes(pod)
    assert functions(process) == ["here", "***", "<module>"]


def test_the_mode_stacks_says_why_there_is_no_rank(pod: Pod) -> None:
    assert stacks(pod)["why"] == f"no agent with `hang` runs in {pod.dir}"
    with start(pod, sys.executable, "-c", SLEEPS + "here()"):
        assert [each["rank"] for each in stacks(pod, "--rank", "0")["ranks"]] == [0]
        (missing,) = stacks(pod, "--rank", "5")["ranks"]
    assert missing["why"] == "rank 5 has no process in this pod"


def test_ranks_of_a_launcher_are_found(pod: Pod) -> None:
    script = f'exec {sys.executable} -c "$SLEEPS"'
    with pod.start_launched(script, 2, env={"SLEEPS": SLEEPS + "here()"}, hang=HANG, grace=1) as running:
        running.wait_for_line(b"sleeps", 2)
        found = stacks(pod)["ranks"]
    assert sorted(each["rank"] for each in found) == [0, 1]
    assert [functions(each["processes"][0]) for each in found] == [["here", "<module>"]] * 2
