"""The agent wraps every rank that a launcher starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.launchers import MPIRUN, TORCHRUN
from tests.agent.pods import AGENT, Ended, Pod, is_alive
from tests.waiting import until


def test_lines_of_ranks_and_launcher_have_different_sources(any_pod: Pod) -> None:
    ended = any_pod.run_launched("echo hello from $RANK", 3, source="node {node_rank}")
    assert ended.lines("node 0") == [b"launching 3"]
    assert [ended.lines(f"rank {rank}") for rank in range(3)] == [[b"hello from %d" % rank] for rank in range(3)]
    assert sorted((e["rank"], e["local_rank"]) for e in ended.events("started")) == [(0, 0), (1, 1), (2, 2)]
    assert sorted((e["rank"], e["exit_code"]) for e in ended.events("exited")) == [(0, 0), (1, 0), (2, 0)]
    assert ended.exit_code == 0


def test_the_arguments_of_the_command_follow_the_program(pod: Pod) -> None:
    config: dict[str, Any] = {"launcher": pod.launcher(TORCHRUN, 1), "program": ["/bin/echo", "-n"], "command_len": 2}
    assert pod.run("torchrun", "script", "--epochs", "3 4", **config).lines("rank 0") == [b"--epochs 3 4"]


def test_variables_in_launcher_and_program_are_expanded(pod: Pod) -> None:
    launcher = [*pod.launcher(TORCHRUN, 1)[:-1], "$(SIZE)"]
    config: dict[str, Any] = {
        "launcher": launcher,
        "program": ["/bin/echo", "$(WHO)", "$$(WHO)", "$(UNKNOWN)"],
        "command_len": 1,
    }
    ended = pod.run("torchrun", "$(WHO)", env={"SIZE": "2", "WHO": "me"}, **config)
    assert ended.lines("rank 1") == [b"me $(WHO) $(UNKNOWN) $(WHO)"]  # the command itself is expanded already


LONG_FORM = "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"  # pip writes it for long paths


@pytest.mark.parametrize("form", ["#!{python}\n", "#! {python} \n", LONG_FORM])
def test_ranks_use_the_python_of_their_launcher(pod: Pod, form: str) -> None:
    python = pod.directory / "elsewhere" / "bin" / "python3.99"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    script = pod.directory / "bin" / "torchrun"
    script.parent.mkdir()
    script.write_text(form.format(python=python) + TORCHRUN)
    script.chmod(0o755)
    config: dict[str, Any] = {"launcher": ["torchrun", "1"], "program": ["python3", "-c"], "command_len": 1}
    path = {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    ended = pod.run("torchrun", "print(open('/proc/self/cmdline').read())", env=path, **config)
    assert ended.lines("rank 0")[0].startswith(os.fsencode(python) + b"\0-c\0")


def test_other_programs_are_unchanged(pod: Pod) -> None:
    config: dict[str, Any] = {"launcher": pod.launcher(TORCHRUN, 1), "program": ["python3", "-c"], "command_len": 1}
    ended = pod.run("torchrun", "print(open('/proc/self/cmdline').read())", **config)
    assert (
        b"-c\0print" in ended.lines("rank 0")[0]
    )  # the launcher is python itself, whose first lines name no interpreter


def test_a_launcher_that_starts_another_number_of_ranks_is_a_failure(any_pod: Pod) -> None:
    ended = any_pod.run_launched("echo trained alone", 2, world_size=4)
    assert ended.exit_code == 71
    assert ended.lines("rank 0") == ended.lines("rank 1") == []
    verdict = ended.verdict
    assert (verdict["kind"], verdict["exit_code"]) == ("Rendezvous", 71)
    assert verdict["error"].startswith("the launcher started 2 ranks instead of 4")


def test_the_right_number_of_ranks_is_not_a_failure(pod: Pod) -> None:
    assert pod.run_launched("echo fine", 2, world_size=2).exit_code == 0


def test_ranks_that_hang_after_another_has_failed_are_stopped(pod: Pod) -> None:
    # A rank that had not started would have no end to report.
    fails = "[ $RANK = 1 ] && { until [ -e up ]; do sleep 0.02; done; exit 6; }"
    script = f"{fails}; touch up; exec sleep 1000"
    ended = pod.run_launched(script, 2, env={"GOES_ON": "1"}, work_dir=str(pod.directory))
    assert ended.exit_code == 6
    assert (ended.verdict["rank"], ended.verdict["exit_code"]) == (1, 6)
    assert {e["rank"]: e.get("signal") for e in ended.events("exited")} == {1: None, 0: signal.SIGTERM}


def test_a_rank_failure_counts_even_if_the_launcher_exits_with_0(pod: Pod) -> None:
    ended = pod.run_launched("[ $RANK = 1 ] && exit 6; exit 0", 2, env={"GOES_ON": "1", "FORGETS": "1"})
    assert ended.exit_code == 6
    assert ended.verdict["rank"] == 1


# In the first attempt rank 0 hangs, and rank 1 fails once rank 0 has started; after the restart both run what follows.
FIRST_TIME = """
cd {directory}
[ -e tried ] || {{
  [ $RANK = 0 ] && touch up && exec sleep 1000
  until [ -e up ]; do sleep 0.02; done
  touch tried
  exit 6
}}
"""


def test_a_failed_rank_that_the_launcher_restarts_is_not_a_failure(any_pod: Pod) -> None:
    script = FIRST_TIME.format(directory=any_pod.directory) + "echo trained"
    ended = any_pod.run_launched(script, 2, launcher_restarts=True, env={"RESTARTS": "1"})
    assert (ended.exit_code, ended.log) == (0, b"")
    assert [e["rank"] for e in ended.events("failed")] == [1]
    assert len(ended.events("started")) == 4


def test_the_incomplete_line_of_a_killed_rank_ends_before_the_rank_starts_again(pod: Pod) -> None:
    script = f"cd {pod.directory}; [ -e tried ] && exec echo trained; touch tried; yes | tr -d '\\n' | head -c 3000000"
    ended = pod.run_launched(f"{script}; kill -KILL $PPID", 1, launcher_restarts=True, env={"RESTARTS": "1"})
    incomplete, trained = ended.lines("rank 0")
    assert (ended.exit_code, set(incomplete), trained) == (0, set(b"y"), b"trained")


def test_when_restarts_are_used_up_the_last_attempt_gives_the_verdict(pod: Pod) -> None:
    script = FIRST_TIME.format(directory=pod.directory) + "exit 7"
    ended = pod.run_launched(script, 2, launcher_restarts=True, env={"RESTARTS": "1"})
    assert ended.exit_code == 1
    assert ended.verdict["exit_code"] == 7


def test_a_launcher_that_fails_by_itself_is_the_failure(pod: Pod) -> None:
    program = ["/bin/sh", "-c", "echo 'RendezvousError: no store at node-0'; exit 3"]
    ended = pod.run("x", launcher=program, program=["true"], command_len=1, source="node 0")
    assert ended.exit_code == 3
    assert ended.verdict["error"] == "RendezvousError: no store at node-0"
    assert "rank" not in ended.verdict


BOX = f"{'-' * 74}\nNo network interfaces were found for out-of-band communications.\n{'-' * 74}\n"


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_mpirun_that_starts_no_rank_is_not_an_error_of_the_training_code(pod: Pod, wrapped: bool) -> None:
    program = ["/bin/sh", "-c", f"printf '%s' '{BOX}'; exit 213"]
    more = {"launcher": program, "program": ["true"], "command_len": 1} if wrapped else {}
    ended = pod.run(*(["x"] if wrapped else program), source="launcher", group="launcher", mpi=True, **more)
    assert (ended.exit_code, ended.verdict["kind"]) == (213, "Infrastructure")
    assert ended.verdict["error"] == "No network interfaces were found for out-of-band communications."


@pytest.mark.parametrize(
    "printed", [f"{BOX}Traceback (most recent call last):\nValueError: bad\n", "ValueError: bad\n"]
)
def test_an_error_of_a_script_that_starts_mpirun_is_not_mpiruns(pod: Pod, printed: str) -> None:
    program = ["/bin/sh", "-c", f"printf '%s' '{printed}'; exit 1"]
    ended = pod.run(*program, source="launcher", group="launcher", mpi=True)
    assert (ended.verdict["error"], ended.verdict.get("kind")) == ("ValueError: bad", None)


# -- in the rank's own process


def rank(env: dict[str, str], *words: str, directory: str = "/nowhere") -> Ended:
    """Runs `agent.py rank` as a launcher in another pod does, with its output in a pipe."""
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    command = [sys.executable, "-I", "-S", str(AGENT), "rank", "--dir", directory, *words]
    ended = subprocess.run(command, env={**clean, **env}, capture_output=True, timeout=30)
    return Ended(ended.returncode, ended.stdout, ended.stderr, b"")


@pytest.mark.parametrize(
    ("env", "number"),
    [
        ({"RANK": "3"}, 3),
        ({"PMI_RANK": "4", "RANK": "3"}, 4),
        ({"PMIX_RANK": "5", "PMI_RANK": "4"}, 5),
        ({"OMPI_COMM_WORLD_RANK": "6", "PMIX_RANK": "5", "RANK": "3"}, 6),
    ],
)
def test_the_rank_is_read_from_the_launchers_variables(env: dict[str, str], number: int) -> None:
    assert rank(env, "--", "echo", "hi").lines(f"rank {number}") == [b"hi"]


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4", "WORLD_SIZE": "2"}, 0),
        ({"PMI_SIZE": "4"}, 0),
        ({"WORLD_SIZE": "4"}, 0),
        ({"OMPI_COMM_WORLD_SIZE": "1", "WORLD_SIZE": "4"}, 71),
        ({"PMI_SIZE": "1"}, 71),
        ({}, 71),
    ],
)
def test_the_world_size_is_read_from_the_launchers_variables(env: dict[str, str], code: int) -> None:
    ended = rank({"RANK": "0", **env}, "--world", "4", "--", "true")
    assert ended.exit_code == code
    assert [e["kind"] for e in ended.events("failed")] == ["Rendezvous"] * (code == 71)


def test_a_rank_ends_as_its_program_ends() -> None:
    assert rank({}, "--", "sh", "-c", "exit 9").exit_code == 9
    assert rank({}, "--", "sh", "-c", "kill -SEGV $$").exit_code == -signal.SIGSEGV
    assert rank({}, "--", "nothing-like-this").exit_code == 127


def test_under_hydra_a_failed_rank_ends_with_a_signal() -> None:
    ended = rank({"PMI_RANK": "2"}, "--", "sh", "-c", "exit 7")
    assert ended.exit_code == -signal.SIGKILL
    assert (ended.event("failed")["rank"], ended.event("failed")["exit_code"]) == (2, 7)
    assert rank({"PMI_RANK": "2"}, "--", "true").exit_code == 0


def test_a_background_program_ends_with_its_rank(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    rank({}, "--", "sh", "-c", f"sleep 1000 > /dev/null 2>&1 & echo $! > {file}")
    assert until(lambda: not is_alive(int(file.read_text())))


# -- ranks in other pods, whose output passes through mpirun


def run_mpi(pod: Pod, script: str, ranks: int, **more: Any) -> Ended:
    """Runs a shell script as ranks in other pods, which have no agent."""
    launched = {"launcher": pod.launcher(MPIRUN, ranks), "program": ["/bin/sh", "-c"], "command_len": 1}
    config = {**launched, "mpi": True, "world_size": ranks, "source": "launcher", "group": "launcher"}
    return pod.run("mpirun", script, **{**config, **more})


@pytest.mark.parametrize("env", [{}, {"TAGS": "1"}])
def test_lines_of_ranks_in_other_pods_pass_through_mpirun_unbroken(any_pod: Pod, env: dict[str, str]) -> None:
    text = "x" * 1500
    script = f"i=0; while [ $i -lt 200 ]; do echo $i {text}; i=$((i+1)); done; printf end"
    ended = run_mpi(any_pod, script, 4, env=env)
    assert ended.lines("launcher") == [b"mpirun here"]
    for number in range(4):
        assert ended.lines(f"rank {number}") == [f"{i} {text}".encode() for i in range(200)] + [b"end"]
    assert sorted(e["rank"] for e in ended.events("exited")) == [0, 1, 2, 3]


def test_the_result_of_a_rank_in_another_pod_passes_through_mpirun(any_pod: Pod) -> None:
    path = any_pod.directory / "other-pod" / "result"  # in a directory that no agent has created
    text = '{"a": "' + "é" * 2000 + '"}'
    (any_pod.directory / "text").write_text(text)
    script = f"[ $OMPI_COMM_WORLD_RANK = 1 ] || cp {any_pod.directory}/text $STEPSET_RESULT_FILE"
    ended = run_mpi(any_pod, script, 2, env={"RANKS_RESULT_FILE": str(path)})
    assert (ended.exit_code, ended.log.decode()) == (0, text)
    assert ended.event("result")["result"] == {"a": "é" * 2000}


def test_a_failure_in_another_pod_is_the_launchers_verdict(pod: Pod) -> None:
    script = "[ $OMPI_COMM_WORLD_RANK = 1 ] && { echo 'ValueError: bad'; exit 7; }; exec sleep 1000"
    ended = run_mpi(pod, script, 3)
    assert (ended.verdict["rank"], ended.verdict["exit_code"], ended.verdict["error"]) == (1, 7, "ValueError: bad")
    assert ended.exit_code == 7
    assert [e["rank"] for e in ended.events("failed")] == [1]


def test_too_few_ranks_in_other_pods_are_a_failure(pod: Pod) -> None:
    ended = run_mpi(pod, "true", 2, env={"REPORTED_SIZE": "1"})
    assert (ended.exit_code, ended.verdict["kind"]) == (71, "Rendezvous")
