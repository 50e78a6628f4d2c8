"""`stepset logs --tail --since --timestamps --previous` of local runs, and `status --watch` in a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepset.backends.local.runs.run_dir import RunDir
from tests.cli.conftest import STEPSET, Cli
from tests.waiting import until

pytestmark = pytest.mark.local

TWICE = r"""
import os, sys, time

attempt = os.environ["STEPSET_ATTEMPT"]
for n in range(3):
    print(f"attempt {attempt} line {n}", flush=True)
    time.sleep(0.05)
if attempt == "0":
    sys.exit(1)
sys.stdout.buffer.write(b"caf\xc3\xa9 \xff\r\n" + b"x" * 1_100_000 + b"\n")
"""
FLAGS = ("--set", "framework.launcher=none")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run with two attempts."""
    directory = tmp_path_factory.mktemp("twice")
    (directory / "twice.py").write_text(TWICE)
    env = {**os.environ, "STEPSET_HOME": str(directory / "home")}
    argv = [STEPSET, "run", "twice.py", *FLAGS, "--max-restarts", "1"]
    done = subprocess.run(argv, cwd=directory, env=env, capture_output=True, timeout=120)
    assert done.returncode == 0
    return directory / "home"


def logs(home: Path, *flags: str) -> list[bytes]:
    """The lines that `stepset logs` writes to a pipe."""
    env = {**os.environ, "STEPSET_HOME": str(home)}
    return subprocess.check_output([STEPSET, "logs", "twice", *flags], env=env, timeout=60).split(b"\n")[:-1]


def test_tail_prints_the_last_lines_with_their_bytes_unchanged(home: Path) -> None:
    everything = logs(home)
    assert len(everything) == 8
    for count in (0, 1, 3, 8, 100):
        assert logs(home, "--tail", str(count)) == everything[8 - count if count < 8 else 0 :]
    assert logs(home, "--tail", "2", "--raw") == [b"caf\xc3\xa9 \xff", b"x" * 1_100_000]


def test_the_mark_of_torch_is_removed_unless_raw(tmp_path: Path, cli: Cli) -> None:
    """torch.distributed begins the lines of a traceback with the rank."""
    (tmp_path / "marked.py").write_text("print('[rank0]: ValueError: bad')\nprint('[rank1]: of another rank')")
    assert cli("run", str(tmp_path / "marked.py"), *FLAGS).code == 0
    kept = "[rank 0] [rank1]: of another rank\n"
    assert cli("logs", "marked", "--tail", "2").out == "[rank 0] ValueError: bad\n" + kept
    assert cli("logs", "marked", "--tail", "2", "--raw").out == "[rank0]: ValueError: bad\n[rank1]: of another rank\n"
    stamped = cli("logs", "marked", "--timestamps").out.splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["[rank 0] ValueError: bad", kept.rstrip()]


def test_previous_prints_the_attempt_before_the_last_restart(home: Path) -> None:
    assert logs(home, "--previous") == [b"[rank 0] attempt 0 line %d" % n for n in range(3)]
    assert logs(home, "--previous", "--tail", "1") == [b"[rank 0] attempt 0 line 2"]


def test_each_line_begins_with_the_time_at_which_it_was_printed(home: Path) -> None:
    now = datetime.now(UTC)
    lines = logs(home, "--timestamps")
    stamps, texts = zip(*(line.split(b" ", 1) for line in lines), strict=True)
    assert list(texts) == logs(home)
    times = [datetime.fromisoformat(stamp.decode()) for stamp in stamps]
    assert times == sorted(times)
    assert all(0 <= (now - at).total_seconds() < 300 for at in times)
    assert (times[2] - times[0]).total_seconds() >= 0.06


def test_since_prints_the_lines_of_that_time(home: Path) -> None:
    assert logs(home, "--since", "1h") == logs(home)
    time.sleep(1.1)
    assert logs(home, "--since", "1s") == []


def test_since_without_lines_prints_a_note_and_without_a_unit_is_an_error(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(home))
    time.sleep(1.1)
    none = cli("logs", "twice", "--since", "1s")
    assert (none.code, none.out, none.err) == (0, "", "stepset: note: no selected lines within the last 1s\n")
    assert cli("logs", "twice", "--since", "1h", "--tail", "0").err == ""
    for command in (("logs", "twice"), ("list",)):
        wrong = cli(*command, "--since", "10")
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err == "stepset: --since: '10' has no unit; write for example 10d, 10h or 10s\n"


def test_a_run_without_a_previous_attempt_or_without_times_is_an_error(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(home))
    (directory,) = (home / "runs").glob("twice-*")
    attempts = RunDir(directory).path / "log.attempts"
    stored = attempts.read_bytes()
    try:
        attempts.write_bytes(stored[:16])
        result = cli("logs", "twice", "--previous")
        assert (result.code, result.out) == (2, "")
        assert result.err == f"stepset: run {directory.name} has no previous attempt\n"
    finally:
        attempts.write_bytes(stored)
    times = directory / "log.times"
    times.rename(directory / "away")
    try:
        result = cli("logs", "twice", "--since", "1h")
        assert (result.code, len(result.errors)) == (2, 1)
        assert "has no times" in result.err
    finally:
        (directory / "away").rename(times)


def test_a_followed_log_begins_with_the_tail(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(
        "import os, time\n"
        "for n in range(5): print('before', n, flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "for n in range(3): print('after', n, flush=True)\n"
    )
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    run = [STEPSET, "run", "-d", "go.py", *FLAGS]
    name = subprocess.check_output(run, cwd=tmp_path, env=env, text=True, timeout=60).strip()
    log = tmp_path / "home" / "runs" / name / "log"
    assert until(lambda: log.read_bytes().count(b"before") == 5)
    argv = [STEPSET, "logs", name, "-f", "--tail", "2"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout
        assert [follower.stdout.readline() for _ in range(2)] == [f"[rank 0] before {n}\n" for n in (3, 4)]
        watcher = subprocess.Popen([STEPSET, "status", name, "-w"], env=env, stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        (tmp_path / "go").touch()
        assert follower.stdout.read() == "".join(f"[rank 0] after {n}\n" for n in range(3))
        assert follower.wait(60) == 0
    out, _ = watcher.communicate(timeout=60)
    assert out.splitlines()[-1] == f"{name}: Succeeded, 1/1 ranks succeeded"
    assert all(re.match(rf"{name}: \w+", line) for line in out.splitlines())


def test_a_reader_that_stops_early_is_not_an_error(home: Path) -> None:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    for words in ("logs twice --tail 8", "logs twice --timestamps", "list -o wide", "list -o json", "status twice -w"):
        piped = f"'{STEPSET}' {words} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", piped], env=env, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("0\n", "")
