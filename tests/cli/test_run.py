"""`stepset run`: what it shows, how it ends, and that no process remains when it is stopped."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import STEPSET, Cli
from tests.cli.scripts import FLAGS, processes_that_mention, write_scripts
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path) -> None:
    write_scripts(tmp_path)


# `stepset` whose ranks have ten minutes between SIGTERM and SIGKILL.
PATIENT = (
    sys.executable,
    "-c",
    "import sys; from stepset.backends.local import LocalBackend; from stepset.cli import main\n"
    "LocalBackend.__init__.__defaults__ = (None, 600.0, 'cli')\n"
    "sys.exit(main(sys.argv[1:]))",
)


@contextmanager
def started(
    directory: Path, *argv: str, stepset: Sequence[str | Path] = (STEPSET,), **popen: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `stepset` in the background, and ends it at the end of the block."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
    env = {**os.environ, "STEPSET_HOME": str(directory / "home"), **streams.pop("env", {})}
    with subprocess.Popen([*stepset, *argv], cwd=directory, env=env, **streams) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def merged_log(directory: Path) -> str:
    """Returns the log of the only run."""
    logs = list((directory / "home" / "runs").glob("*/log"))
    return logs[0].read_text(errors="replace") if logs else ""


def wait_until_ready(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Waits until all four ranks of `sleep.py` have printed that they are ready."""
    until(lambda: merged_log(directory).count("ready") == 4 or process.poll() is not None)
    if merged_log(directory).count("ready") != 4:
        process.kill()
        raise AssertionError(f"the ranks did not start: {process.communicate()}; log: {merged_log(directory)!r}")


@pytest.mark.smoke
def test_a_run_that_succeeds(cli: Cli) -> None:
    result = cli("run", "train.py", *FLAGS, "--", "--epochs", "3", "--", "x")
    assert result.code == 0
    assert sorted(result.out.splitlines()) == [f"[rank {n}] args ['--epochs', '3', '--', 'x']" for n in range(4)]
    assert result.errors[-1].startswith("stepset: run train-")
    assert result.errors[-1].endswith('; result: {"world_size": 4}')
    assert " succeeded in " in result.errors[-1]
    assert "\x1b" not in result.out + result.err


def test_the_name_of_a_run_is_chosen_once_and_must_be_a_label(cli: Cli) -> None:
    words = ("run", "--framework", "plain", "--command", "--run-name")
    assert cli(*words, "digits-7", "--", "true").code == 0
    assert cli("list", "-o", "name").out == "digits-7\n"
    for detach in ((), ("--detach",)):
        taken = cli(*words, "digits-7", *detach, "--", "true")
        assert (taken.code, taken.err) == (
            2,
            "stepset: the run's name: run 'digits-7' exists already; choose another name, or delete that run first\n",
        )
        invalid = cli(*words, "Digits_7", *detach, "--", "true")
        assert (invalid.code, invalid.err) == (
            2,
            "stepset: the run's name: 'Digits_7' is not a DNS-1035 label; use lower-case letters, digits and '-',"
            " starting with a letter (for example 'digits-7')\n",
        )
    assert cli(*words, "digits-8", "--detach", "--", "true").out == "digits-8\n"


def test_a_job_file_finds_its_files_beside_it(cli: Cli, tmp_path: Path) -> None:
    inside = tmp_path / "jobs"
    inside.mkdir()
    (inside / "job.yaml").write_text("{script: ../train.py, framework: {kind: torch, launcher: none}}\n")
    result = cli("run", "jobs/job.yaml", "--name", "digits")
    assert (result.code, result.out) == (0, "[rank 0] args []\n")
    assert result.errors[-1].startswith("stepset: run digits-")


def test_any_command_can_be_run(cli: Cli) -> None:
    result = cli("run", "--framework", "plain", "--nodes", "2", "-e", "WHO=$(STEPSET_NODE_RANK)", "--command", "--",
               "sh", "-c", "echo i am $WHO")  # fmt: skip
    assert result.code == 0
    assert sorted(line.split("] ")[1] for line in result.out.splitlines()) == ["i am 0", "i am 1"]


def test_a_job_has_the_name_of_the_script_that_python_runs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pi.py").write_text("")
    done = cli("run", "--framework", "plain", "--command", "--", "python3", "-u", "pi.py")
    assert re.search(r"run pi-\w+ succeeded", done.err), done.err


def test_a_note_names_the_framework_that_the_script_imports(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pi.py").write_text("try:\n    from mpi4py import MPI\nexcept ImportError:\n    pass\n")
    note = "stepset: note: pi.py imports mpi4py; use --framework mpi, or each rank runs alone"
    done = cli("run", "pi.py", "--nodes", "2")  # fails afterwards in an environment without torchrun
    assert done.errors[0] == note
    assert note not in cli("run", "pi.py").err, "one rank"
    assert note not in cli("run", "pi.py", "--nodes", "2", "--framework", "plain").err


def test_progress_is_shown_and_its_lines_are_not(cli: Cli) -> None:
    result = cli("run", "train.py", *FLAGS)
    assert '{"stepset"' not in result.out
    assert any(line.startswith("stepset: progress: ") for line in result.errors)


def test_a_run_that_fails_names_the_first_rank_and_its_error(cli: Cli, tmp_path: Path) -> None:
    result = cli("run", "fail.py", *FLAGS)
    assert result.code == 1
    assert sorted(line for line in result.out.splitlines() if "starts" in line) == [
        f"[rank {n}] rank {n} starts" for n in range(4)
    ]
    first = next(i for i, line in enumerate(result.errors) if " failed after " in line)
    assert ": UserError: " in result.errors[first]
    block = [line[2:15].strip() for line in result.errors[first + 1 :]]
    assert {"first failure", "error", "last lines", "aftermath", "advice", "logs"} <= set(block)
    assert any(line.startswith("  first failure rank 3, ") for line in result.errors)
    assert "  error         ValueError: bad batch" in result.errors
    assert processes_that_mention(tmp_path) == []


def test_a_result_over_the_limit_is_bad_input(cli: Cli) -> None:
    result = cli("run", "big_result.py", "--set", "framework.launcher=none")
    assert result.code == 2
    assert ": Rejected: " in result.err
    assert "4096" in result.err


def test_a_missed_deadline_is_exit_code_4(cli: Cli) -> None:
    result = cli("run", "sleep.py", "--deadline", "1s", "--set", "framework.launcher=none")
    assert result.code == 4
    assert ": DeadlineExceeded: " in result.err


def test_a_home_that_cannot_be_written_is_an_infrastructure_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "file"))
    result = cli("run", "train.py", *FLAGS)
    assert (result.code, result.out, len(result.errors)) == (3, "", 1)
    assert str(tmp_path / "file") in result.err


def test_with_json_stdout_contains_only_the_final_status(cli: Cli) -> None:
    result = cli("run", "train.py", *FLAGS, "-o", "json")
    status = json.loads(result.out)
    assert (status["phase"], status["result"], len(status["ranks"])) == ("Succeeded", {"world_size": 4}, 4)
    assert status["progress"] == {"step": 2, "progress": 1.0, "metrics": {"loss": 0.5}}
    assert "[rank 3] args []" in result.errors
    failed = cli("run", "fail.py", *FLAGS, "-o", "json")
    assert failed.code == 1
    assert json.loads(failed.out)["failure"]["rank"] == 3


def test_each_line_of_a_rank_becomes_one_line_of_output(program: Cli) -> None:
    result = program("run", "bytes.py", *FLAGS, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert result.out.splitlines() == [
        "[rank 0] café \ufffd\ufffd",
        "[rank 0] ",
        "[rank 0] [rank 9] not me",
        "[rank 0] marked by torch",
        "[rank 0] no newline at the end",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_the_first_signal_stops_the_ranks_with_grace(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "run", "sleep.py", *FLAGS) as process:
        wait_until_ready(process, tmp_path)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.decode().count("saved a checkpoint") == 4
    assert "stepset: stopping the run; a second signal kills it at once" in err.decode()
    assert err.decode().splitlines()[-1].startswith("stepset: run sleep-")
    assert " was cancelled after " in err.decode().splitlines()[-1]
    assert processes_that_mention(tmp_path) == []


def test_the_second_signal_kills_at_once(tmp_path: Path) -> None:
    with started(tmp_path, "run", "sleep.py", *FLAGS, "--", "stubborn", stepset=PATIENT) as process:
        wait_until_ready(process, tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        assert any(b"a second signal kills it" in line for line in iter(process.stderr.readline, b""))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert b"stepset: killing the run" in err
    assert processes_that_mention(tmp_path) == []


def test_a_closed_reader_stops_the_run(tmp_path: Path) -> None:
    with started(tmp_path, "run", "sleep.py", *FLAGS) as process:
        assert process.stdout and process.stderr
        assert [process.stdout.readline().count(b"ready") for _ in range(4)] == [1] * 4
        process.stdout.close()
        # The next write fails because the pipe is closed: a signal makes a rank print.
        pid = int(merged_log(tmp_path).split("ready ")[1].split()[0])
        os.kill(pid, signal.SIGTERM)
        err = process.stderr.read()
        assert process.wait(60) == 130
    assert b"Traceback" not in err
    assert b"Broken" not in err
    assert processes_that_mention(tmp_path) == []


def test_a_closed_reader_of_both_streams_stops_the_run(tmp_path: Path) -> None:
    with started(tmp_path, "run", "talk.py", *FLAGS, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        assert any(b"still here" in line for line in iter(process.stdout.readline, b""))
        process.stdout.close()
        assert process.wait(60) == 130
    assert processes_that_mention(tmp_path) == []


def test_json_is_written_to_stdout_if_the_lines_have_no_reader(tmp_path: Path) -> None:
    with started(tmp_path, "run", "talk.py", *FLAGS, "-o", "json") as process:
        assert process.stdout and process.stderr
        assert any(b"still here" in line for line in iter(process.stderr.readline, b""))
        process.stderr.close()
        assert json.loads(process.stdout.read())["failure"]["kind"] == "Cancelled"
        assert process.wait(60) == 130


def test_a_full_disk_under_stdout_stops_the_run_and_is_reported(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, started(tmp_path, "run", "sleep.py", *FLAGS, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert (
        err.decode().splitlines()[-1]
        == "stepset: the output cannot be written: No space left on device; the run was stopped"
    )
    assert processes_that_mention(tmp_path) == []


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (  # stacks that exceed the limit, so that the system refuses to start a thread
            f"ulimit -s {1 << 30} && ulimit -v 8000000",
            "stepset: no thread can be started: can't start new thread; see the limits of processes and memory"
            " (ulimit -u, ulimit -v)",
        ),
        ("ulimit -n 12", "Too many open files; raise the limit of open files (ulimit -n)"),
    ],
)
def test_a_limit_of_the_system_is_named_and_is_infrastructure(tmp_path: Path, limit: str, error: str) -> None:
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    words = f"{limit} && '{STEPSET}' run train.py {' '.join(FLAGS)}"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert any(line.rstrip(".").endswith(error) for line in done.stderr.splitlines())
    assert processes_that_mention(tmp_path) == []


def test_runs_with_closed_standard_streams(tmp_path: Path) -> None:
    words = f"'{STEPSET}' run train.py {' '.join(FLAGS)}"
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    assert subprocess.run(["sh", "-c", f"{words} <&- >&- 2>&-"], cwd=tmp_path, env=env, timeout=60).returncode == 0
    assert merged_log(tmp_path).count("args []") == 4


def on_a_terminal(
    directory: Path, *argv: str, env: dict[str, str], typed: tuple[bytes, bytes] = (b"", b"")
) -> tuple[int, str]:
    """Runs `stepset` in a terminal; returns (exit code, the output on the terminal).

    `typed` is (the output to wait for, the input to type then).
    """
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": take_terminal}
    awaited, keys = typed
    with started(directory, *argv, **streams, env={"TERM": "xterm", **env}) as process:
        os.close(theirs)
        seen = bytearray()
        while True:
            if keys and len(re.findall(awaited, seen)) == 4:
                os.write(ours, keys)
                keys = b""
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux reports EIO when the last writer has closed it
                break
            if not data:
                break
            seen += data
        code = process.wait(60)
    os.close(ours)
    return code, seen.decode()


def test_on_a_terminal_lines_are_coloured_above_a_status_line(tmp_path: Path) -> None:
    code, seen = on_a_terminal(tmp_path, "run", "fail.py", *FLAGS, env={"NO_COLOR": ""})
    assert code == 1
    assert "\x1b[36m[rank 0]\x1b[0m rank 0 starts" in seen
    assert "\x1b[35m[rank 3]\x1b[0m rank 3 starts" in seen
    assert "ranks running" in seen
    assert "\r\x1b[K" in seen
    assert "stepset: progress" not in seen
    assert "\x1b[1;31mfailed\x1b[0m after" in seen


def test_a_terminal_shows_the_traceback_of_the_first_failure_once(tmp_path: Path) -> None:
    code, seen = on_a_terminal(tmp_path, "run", "fail.py", *FLAGS, env={"NO_COLOR": "1"})
    assert code == 1
    assert "[rank 3] ValueError: bad batch" in seen
    assert (seen.count("Traceback"), "  last lines " in seen, "  error  " in seen) == (1, False, False)
    rows = ("  first failure rank 3,", "  frame  ", "  advice  ", "  logs  ")
    assert [row for row in rows if row not in seen] == []
    home = {"STEPSET_HOME": str(tmp_path / "home")}
    done = subprocess.run([STEPSET, "diagnose"], env={**os.environ, **home}, capture_output=True, text=True)
    assert "  last lines " in done.stderr and "  error  " in done.stderr


def test_on_a_terminal_NO_COLOR_leaves_only_the_status_line(tmp_path: Path) -> None:  # noqa: N802  # its name
    code, seen = on_a_terminal(tmp_path, "run", "train.py", *FLAGS, env={"NO_COLOR": "1"})
    assert code == 0
    assert "[rank 0] args []" in seen
    sequences = seen.split("\x1b")[1:]
    assert sequences
    assert all(sequence.startswith("[K") for sequence in sequences)


def test_a_terminal_that_is_closed_stops_the_run(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with started(tmp_path, "run", "talk.py", *FLAGS, stdout=theirs, stderr=theirs, env={"TERM": "xterm"}) as process:
        os.close(theirs)
        seen = b""
        while b"still here" not in seen:
            seen += os.read(ours, 65536)
        os.close(ours)  # not a controlling terminal: stepset gets a write error, not a signal
        assert process.wait(60) == 130
    assert processes_that_mention(tmp_path) == []


def test_ctrl_c_on_a_terminal_signals_only_stepset(tmp_path: Path) -> None:
    argv = ("run", "sleep.py", *FLAGS)
    code, seen = on_a_terminal(tmp_path, *argv, env={"NO_COLOR": "1"}, typed=(rb"\] ready \d+", b"\x03"))
    assert code == 130
    assert seen.count("saved a checkpoint") == 4
    assert "was cancelled after" in seen
    assert "Traceback" not in seen
