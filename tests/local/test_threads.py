"""A local run's threads end with the call that started them, with any result of the call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.backends.local import LocalBackend
from stepset.run_status import FailureKind, LogLine, Phase
from stepset.signals import on_signals
from tests.local.conftest import Local, RecordingListener, wait_for
from tests.waiting import LIMIT

pytestmark = pytest.mark.local

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


@pytest.fixture(autouse=True)
def threads_end(local: Local, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compares the threads of this process before and after the test's calls."""
    monkeypatch.setenv("STEPSET_HOME", str(local.home))
    before = threading.enumerate()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    yield
    assert threading.enumerate() == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


def run(local: Local, script: str, listener: Any = None) -> Any:
    """Calls `stepset.run` with a script for two nodes."""
    local.path("train.py").write_text(script)
    job = {"name": "job", "framework": "plain", "script": "train.py", "num_nodes": 2}
    threads = threading.enumerate()
    try:
        return stepset.run(job, base_dir=local.directory, listener=listener)
    finally:
        assert threading.enumerate() == threads, "the threads have ended when the call ends"


class Interrupting(RecordingListener):
    """Sends SIGINT to this process when a rank has printed its first line.

    Args:
        times: the number of signals.
        pause: seconds between two signals.
    """

    def __init__(self, times: int = 1, pause: float = 0.0) -> None:
        super().__init__()
        self._times, self._pause = times, pause

    def on_line(self, line: LogLine) -> None:
        super().on_line(line)
        times, self._times = self._times, 0
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(self._pause)


def test_when_the_run_succeeds(local: Local) -> None:
    assert run(local, "print('done')").phase is Phase.SUCCEEDED


def test_when_the_run_fails(local: Local) -> None:
    with pytest.raises(stepset.TrainingFailedError):
        run(local, "import sys; sys.exit(1)")


def test_when_the_job_is_refused(local: Local) -> None:
    local.path("train.py").touch()
    with pytest.raises(stepset.BadInputError):
        stepset.run({"framework": "plain", "command": ["no-such-program"]}, base_dir=local.directory)


def test_when_the_listener_fails(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingListener):
        def on_line(self, line: LogLine) -> None:
            super().on_line(line)
            raise ValueError(line.text)

        def on_status(self, status: stepset.RunStatus) -> None:
            super().on_status(status)
            raise ValueError(status.phase)

    listener = Broken()
    status = run(local, "print('one'); print('two')", listener)
    assert [line.text for line in listener.lines if line.rank == 0 or line.source == "node 0"] == ["one", "two"]
    assert listener.statuses[-1].phase is status.phase is Phase.SUCCEEDED
    [warning] = [message for message in caplog.messages if "listener" in message]
    assert warning.startswith("stepset: the run continues after an exception of its listener: ValueError(<Phase.")
    assert warning.endswith(": raise ValueError(status.phase)")


def test_when_the_listener_lacks_a_method(local: Local) -> None:
    class Half:
        def on_line(self, line: LogLine) -> None: ...

    with pytest.raises(stepset.BadInputError, match="listener: print has no method on_line and no method on_status; "):
        run(local, SLEEP, print)
    with pytest.raises(stepset.BadInputError, match="listener: Half has no method on_status; "):
        asyncio.run(stepset.aio.run("train.py", framework="plain", listener=Half()))  # type: ignore[arg-type]
    assert stepset.list_runs() == []


@pytest.mark.parametrize("times", [1, 2, 50])
def test_when_ctrl_c_interrupts_it_once_or_several_times(local: Local, times: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(local, SLEEP, Interrupting(times, pause=0.001))
    status = LocalBackend(local.home).status("job")
    assert status.phase is Phase.FAILED and status.failure is not None
    assert status.failure.kind is FailureKind.CANCELLED


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalBackend.__init__, "__defaults__", (None, 600.0, "cli"))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(local, STUBBORN, Interrupting(2, pause=0.5))
    assert time.monotonic() - began < LIMIT


def test_when_the_caller_is_not_the_main_thread(local: Local) -> None:
    phases = []
    caller = threading.Thread(target=lambda: phases.append(run(local, "print('done')").phase))
    caller.start()
    caller.join(LIMIT)
    assert phases == [Phase.SUCCEEDED]


def test_when_a_signal_handler_of_the_caller_raises(local: Local) -> None:
    class EnoughError(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise EnoughError

    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(EnoughError):
            run(local, SLEEP, Interrupting())
    finally:
        signal.signal(signal.SIGINT, before)


def test_when_a_handle_was_waited_for(local: Local) -> None:
    before = threading.enumerate()
    for _ in range(5):
        handle = local.start("print('done')")
        handle.wait()
        assert threading.enumerate() == before


class TestSignals:
    """Signals within `on_signals`, which the command line and the components use."""

    def test_are_handled_in_another_thread_in_their_order(self) -> None:
        seen: list[tuple[int, bool]] = []
        with on_signals(
            (signal.SIGTERM, signal.SIGHUP),
            lambda number: seen.append((number, threading.current_thread() is threading.main_thread())),
        ):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
                signal.raise_signal(number)
        assert seen == [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGTERM, False)]

    def test_whose_handling_fails_raise_at_the_end_of_the_block(self) -> None:
        def act(number: int) -> None:
            raise ValueError(number)

        continued = False
        with pytest.raises(ValueError, match="15"), on_signals((signal.SIGTERM,), act):
            signal.raise_signal(signal.SIGTERM)
            continued = True
        assert continued

    def test_still_reach_a_surrounding_event_loop(self) -> None:
        inner, outer = os.pipe()
        os.set_blocking(outer, False)
        before = signal.set_wakeup_fd(outer)
        try:
            with on_signals((signal.SIGTERM,), lambda number: None):
                signal.raise_signal(signal.SIGTERM)
            assert os.read(inner, 10) == bytes((signal.SIGTERM,))
            assert signal.set_wakeup_fd(before) == outer, "the descriptor is restored"
        finally:
            signal.set_wakeup_fd(before)
            os.close(inner)
            os.close(outer)

    def test_in_a_forked_child_have_their_original_handlers(self, tmp_path: Path) -> None:
        seen: list[int] = []
        marked = tmp_path / "marked"
        own = signal.signal(signal.SIGTERM, lambda *_: marked.write_text("1"))
        try:
            with on_signals((signal.SIGTERM, signal.SIGINT), seen.append):
                child = os.fork()
                if child == 0:
                    try:
                        signal.raise_signal(signal.SIGTERM)
                        signal.raise_signal(signal.SIGINT)
                    except KeyboardInterrupt:
                        os._exit(7)
                    os._exit(8)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        finally:
            signal.signal(signal.SIGTERM, own)
        assert wait_for(marked) == "1"
        assert seen == []

    def test_keep_their_handlers_outside_the_main_thread(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        inside: list[object] = []

        def work() -> None:
            with on_signals((signal.SIGTERM,), lambda number: None):
                inside.append(signal.getsignal(signal.SIGTERM))

        worker = threading.Thread(target=work)
        worker.start()
        worker.join(LIMIT)
        assert inside == [before]
