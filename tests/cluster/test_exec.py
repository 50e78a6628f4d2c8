"""`stepset exec` in pods: the environment and the directory of a rank, streams, exit codes, a terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest

from stepset.targets.rbac import Account, rbac
from tests.cluster.runs import ACCOUNT, Runs
from tests.cluster.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def running(runs: Runs, stage: Stage) -> Iterator[str]:
    """The name of a run of two ranks that wait; the account may start commands beside them."""
    for each in rbac("cli", exec=True, namespace=runs.namespace, accounts=[Account(ACCOUNT)]):
        runs.cluster.objects.create(each, runs.namespace, exist_ok=True)
    job = runs.job_file(**stage.job("count_until('end')", env={"WORD": "of the job"}))
    done = runs.cli("run", job, "--detach")
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip()
    assert until(lambda: {"[rank 0] line 0", "[rank 1] line 0"} <= {*runs.cli("logs", name).stdout.splitlines()})
    yield name
    stage.say("end")


def test_a_command_has_the_environment_of_the_rank_and_its_streams(runs: Runs, running: str) -> None:
    script = 'echo "$RANK $WORLD_SIZE $WORD"; readlink /proc/$$/cwd; echo problem >&2; exit 7'
    done = runs.cli("exec", running, "--ranks", "1", "--", "sh", "-c", script)
    first, directory = done.stdout.splitlines()
    assert (done.returncode, first, done.stderr) == (7, "1 2 of the job", "problem\n")
    assert directory == runs.cli("exec", running, "--", "pwd").stdout.strip()
    assert runs.cli("exec", running, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = runs.cli("exec", running, "--", "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "stepset: no-such-program: No such file or directory\n")


def test_a_pipe_of_any_size_reaches_the_command_and_its_output_the_caller(runs: Runs, running: str) -> None:
    data = os.urandom(1 << 20)
    with (runs.directory / "data").open("wb+") as file:
        file.write(data)
        file.seek(0)
        words = [*runs.words("exec", running, "--", "sha256sum")]
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    expected = subprocess.run(["sha256sum"], input=data, capture_output=True, check=True).stdout.decode()
    assert done.stdout == expected
    done = runs.cli("exec", running, "--", "seq", "200000")
    assert done.stdout.splitlines() == [str(number) for number in range(1, 200_001)]


def test_in_a_terminal_the_command_has_a_terminal_of_the_same_size(runs: Runs, running: str) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    words = runs.words("exec", running, "--", "sh", "-c", "tty; read line; stty size; echo got $line; exit 5")
    seen, env = b"", {**os.environ, "COLUMNS": "10", "LINES": "5"}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        while b"/dev/" not in seen:
            seen += os.read(ours, 4096)
        os.write(ours, b"a word\r")
        while data := _read(ours):
            seen += data
        assert process.wait(60) == 5, seen
    os.close(ours)
    assert b"33 111\r\n" in seen
    assert b"got a word\r\n" in seen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports EIO when the last writer has closed it
        return b""


def test_a_rank_that_does_not_run_is_bad_input(runs: Runs, running: str, stage: Stage) -> None:
    unknown = runs.cli("exec", running, "--ranks", "9", "--", "true")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        f"stepset: run {running} has no rank 9; it has: rank 0, rank 1\n",
    )
    stage.say("end")
    assert runs.cli("wait", running).returncode == 0
    over = runs.cli("exec", running, "--", "true")
    assert (over.returncode, f"run {running} is over: Succeeded" in over.stderr) == (2, True)
