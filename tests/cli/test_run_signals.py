"""`stepset run` under several signals at once: it always ends, and its run ends with it.

A Python signal handler interrupts the main thread at any bytecode, also inside another handler. A handler that takes a
lock of the interrupted code waits forever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import STEPSET, Cli
from tests.cli.scripts import FLAGS, processes_that_mention
from tests.cli.test_run import merged_log, started, wait_until_ready
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NOISY = """
import signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    for n in range(200):
        print("line", n, "x" * 80)
    sys.stdout.flush()
    time.sleep(0.01)
"""

# `stepset` that, from SIGUSR1 on, gets SIGTERM before each line that its main thread executes, handlers included.
INTERRUPTED_EVERYWHERE = (
    sys.executable,
    "-c",
    """
import signal, sys
from stepset.cli import main

left = 300

def trace(frame, event, arg):
    global left
    if event == "line" and left and callable(signal.getsignal(signal.SIGTERM)):
        left -= 1
        signal.raise_signal(signal.SIGTERM)
    return trace

signal.signal(signal.SIGUSR1, lambda *_: sys.settrace(trace))
sys.exit(main(sys.argv[1:]))
""",
)


@pytest.fixture(autouse=True)
def noisy(tmp_path: Path) -> None:
    """Writes a script that prints continuously, so that the display is busy when a signal arrives."""
    (tmp_path / "noisy.py").write_text(NOISY)


def end_of(run: subprocess.Popen[bytes], directory: Path) -> tuple[int, str]:
    """Returns (exit code, stderr) of a `stepset run` after its signals; fails the test if it does not end."""
    try:
        _, err = run.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        env = {**os.environ, "STEPSET_HOME": str(directory / "home")}
        seen = subprocess.run([STEPSET, "status", "noisy"], env=env, capture_output=True, text=True, timeout=LIMIT)
        raise AssertionError(f"it did not end; `stepset status` reports:\n{seen.stdout}") from None
    return run.returncode, err.decode()


def burst(directory: Path, numbers: Sequence[int], pause: float = 0.0) -> tuple[int, str]:
    """Sends signals to a `stepset run`, `pause` seconds apart; returns (exit code, stderr)."""
    with (directory / "stdout").open("wb") as lines, started(directory, "run", "noisy.py", *FLAGS, stdout=lines) as run:
        wait_until_ready(run, directory)
        for number in numbers:
            os.kill(run.pid, number)
            at = time.perf_counter() + pause
            while time.perf_counter() < at:  # sleep is not as precise
                pass
        return end_of(run, directory)


def test_a_signal_before_any_line_of_the_main_thread_does_not_block_it(tmp_path: Path) -> None:
    with (
        (tmp_path / "stdout").open("wb") as lines,
        started(tmp_path, "run", "noisy.py", *FLAGS, stepset=INTERRUPTED_EVERYWHERE, stdout=lines) as run,
    ):
        wait_until_ready(run, tmp_path)
        run.send_signal(signal.SIGUSR1)
        run.send_signal(signal.SIGINT)
        code, err = end_of(run, tmp_path)
    assert code == 130
    assert "stepset: stopping the run; a second signal kills it at once" in err
    assert processes_that_mention(tmp_path) == []


@pytest.mark.machine
@pytest.mark.parametrize("microseconds", [0, 20, 50, 100])
def test_two_signals_in_quick_succession_end_it(tmp_path: Path, microseconds: int) -> None:
    code, err = burst(tmp_path, (signal.SIGINT, signal.SIGTERM), microseconds / 1e6)
    assert code == 130
    messages = [line for line in err.splitlines() if line.startswith(("stepset: stopping", "stepset: killing"))]
    assert messages == ["stepset: stopping the run; a second signal kills it at once", "stepset: killing the run"]
    assert processes_that_mention(tmp_path) == []


def test_hundreds_of_signals_within_milliseconds_end_it(tmp_path: Path) -> None:
    # The last signals may arrive after it has restored the handlers: then a signal ends it, as any program.
    code, _ = burst(tmp_path, [STOPS[n % 3] for n in range(600)])
    assert code in (130, *(-number for number in STOPS))
    assert processes_that_mention(tmp_path) == []


def test_continuous_signals_do_not_delay_its_end(tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as lines, started(tmp_path, "run", "noisy.py", *FLAGS, stdout=lines) as run:
        wait_until_ready(run, tmp_path)
        end, sent = time.monotonic() + LIMIT, 0
        while run.poll() is None and time.monotonic() < end:
            os.kill(run.pid, STOPS[sent % 3])
            sent += 1
            time.sleep(0.0005)
        assert run.poll() is not None, f"it did not end within {LIMIT:.0f} s and {sent} signals"


def test_a_signal_that_was_ignored_before_stays_ignored(tmp_path: Path) -> None:
    def as_nohup_does() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with (
        (tmp_path / "stdout").open("wb") as lines,
        started(tmp_path, "run", "noisy.py", *FLAGS, stdout=lines, preexec_fn=as_nohup_does) as run,
    ):
        wait_until_ready(run, tmp_path)
        run.send_signal(signal.SIGHUP)
        more = len(merged_log(tmp_path)) + 100_000
        assert until(lambda: len(merged_log(tmp_path)) > more), "the ranks continue"
        run.send_signal(signal.SIGTERM)
        code, err = end_of(run, tmp_path)
    assert code == 130
    assert "stopping the run" in err
    assert "killing the run" not in err, "SIGTERM was the first that counted"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("print('done')", 0),
        ("import sys; sys.exit(1)", 1),
        ("import os, signal, time; os.kill(int(os.environ['CALLER']), signal.SIGINT); time.sleep(600)", 130),
    ],
    ids=["succeeds", "fails", "interrupted"],
)
def test_no_thread_remains_when_the_command_ends(cli: Cli, tmp_path: Path, script: str, code: int) -> None:
    (tmp_path / "one.py").write_text(script)
    before = threading.enumerate()
    handlers = [signal.getsignal(number) for number in STOPS]
    assert cli("run", "one.py", "-e", f"CALLER={os.getpid()}", "--set", "framework.launcher=none").code == code
    assert threading.enumerate() == before
    assert [signal.getsignal(number) for number in STOPS] == handlers
