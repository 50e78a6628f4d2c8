"""Processes are started in groups of their own, and end as expected."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from stepset.agent.loop import read_pipe
from stepset.agent.process import exit_code, outcome, spawn, which
from stepset.agent.signals import descendants, forward_signal, group_exists, kill, kill_group
from tests.waiting import until

ENV = {"PATH": os.defpath}


def run(*argv: str, work_dir: str = "") -> tuple[dict[str, int], bytes]:
    """Runs a program; returns how it ended and its output."""
    inner, outer = read_pipe(0)
    pid = spawn(argv, ENV, (inner, outer, outer), work_dir=work_dir)
    os.close(outer)
    os.set_blocking(inner, True)
    with os.fdopen(inner, "rb") as pipe:
        return outcome(os.waitpid(pid, 0)[1]), pipe.read()


def start(script: str) -> int:
    with Path(os.devnull).open("r+b") as null:
        return spawn(["/bin/sh", "-c", script], ENV, (null.fileno(), null.fileno(), null.fileno()))


@pytest.mark.parametrize(
    ("script", "end", "code"),
    [("exit 0", {"exit_code": 0}, 0), ("exit 3", {"exit_code": 3}, 3), ("kill -9 $$", {"signal": 9}, 137)],
)
def test_how_a_program_ends(script: str, end: dict[str, int], code: int) -> None:
    assert run("/bin/sh", "-c", script) == (end, b"")
    assert exit_code(end) == code


def test_it_starts_in_its_working_directory(tmp_path: Path) -> None:
    assert run("pwd", work_dir=str(tmp_path))[1] == f"{tmp_path}\n".encode()


def test_a_program_that_cannot_start_ends_as_in_a_shell(tmp_path: Path) -> None:
    assert run("none") == ({"exit_code": 127}, b"stepset: cannot start none: not found on PATH\n")
    assert run("/none")[0] == {"exit_code": 127}
    (tmp_path / "file").touch()
    assert run(str(tmp_path / "file"))[0] == {"exit_code": 126}


def test_finds_the_file_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(mode=0o755)
    (tmp_path / "text").touch(mode=0o644)
    env = {"PATH": f"/none:{tmp_path}"}
    assert which("tool", env) == str(tmp_path / "tool")
    assert which("text", env) is None
    assert which("./any", env) == "./any"


def test_it_leads_a_group_and_is_a_descendant() -> None:
    pid = start("sleep 1000 & wait")
    assert until(lambda: len(descendants(pid)) == 1)
    (child,) = descendants(pid)
    assert pid in descendants(os.getpid())
    assert os.getpgid(child) == os.getpgid(pid) == pid
    kill([pid, child])
    os.waitpid(pid, 0)
    assert until(lambda: not group_exists(pid))
    kill([pid])
    kill_group(pid, signal.SIGKILL)


def test_a_signal_goes_to_a_shells_whole_group_but_to_another_program_alone() -> None:
    shell, other = start("sleep 1000 & wait"), start("exec sleep 1000")
    assert until(lambda: len(descendants(shell)) == 1)
    assert until(lambda: Path(f"/proc/{other}/exe").readlink() != Path(f"/proc/{shell}/exe").readlink())
    assert (forward_signal(shell, signal.SIGTERM), forward_signal(other, signal.SIGTERM)) == (True, False)
    assert [outcome(os.waitpid(pid, 0)[1]) for pid in (shell, other)] == [{"signal": signal.SIGTERM}] * 2
    assert until(lambda: not group_exists(shell))
