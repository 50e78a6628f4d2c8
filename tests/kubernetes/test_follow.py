"""A follower whose server does not answer, and the threads that remain after it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepset.backends.kubernetes.stop import suspend
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import VERDICT
from tests.kubernetes.nowhere import RUN, nowhere


def test_cancel_after_leave_reports_that_the_run_continues_if_the_server_cannot_be_reached(tmp_path: Path) -> None:
    handle = nowhere(tmp_path).follow(RUN)
    handle.leave()
    assert not handle.wait().phase.final
    with pytest.raises(InfrastructureError, match=r"^run run continues, and cannot be stopped: server .* reached"):
        handle.cancel()


def test_no_thread_outlives_a_call_or_a_closed_handle(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    backend = nowhere(tmp_path)
    with pytest.raises(InfrastructureError, match="reached"):
        backend.status("run")
    handle = backend.follow(RUN)
    assert set(threading.enumerate()) > before
    handle.cancel(suspend)  # the follower retries while the server does not answer
    handle.close()
    assert set(threading.enumerate()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of the system")
def test_no_thread_of_the_system_outlives_a_call(tmp_path: Path) -> None:
    """A child process that was forked right after a call once waited forever for a lock of a thread that was ending."""
    backend = nowhere(tmp_path)
    before = set(Path("/proc/self/task").iterdir())
    for _ in range(300):
        with pytest.raises(InfrastructureError):
            backend.status("run")
        assert set(Path("/proc/self/task").iterdir()) <= before


def test_a_collected_handle_of_a_finished_run_blocks_no_later_call(tmp_path: Path) -> None:
    """The last caller that left the event loop once waited forever for a task that the handle had started in it."""
    verdict = json.dumps(RunStatus("run", "run", "kubernetes", phase=Phase.SUCCEEDED).to_dict())
    ended = {"conditions": [{"type": "Completed", "status": "True"}]}
    over = {**RUN, "metadata": {**RUN["metadata"], "annotations": {VERDICT: verdict}}, "status": ended}
    program = f"""
import gc, pathlib, threading, time
from stepset.errors import InfrastructureError
from stepset.targets.metadata import VERDICT
from stepset.run_status import Phase, RunStatus
from tests.kubernetes.nowhere import nowhere
backend = nowhere(pathlib.Path({str(tmp_path)!r}))
handle = backend.follow({over!r})
while not handle.ended(1):
    pass
del handle
gc.collect()
try:
    backend.status("run")
except InfrastructureError as error:
    print(type(error).__name__)
while threading.active_count() > 1:
    time.sleep(0.01)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("UnreachableError\n", 0), done.stderr


def test_runs_followed_at_the_same_time_share_one_thread(tmp_path: Path) -> None:
    backend = nowhere(tmp_path)
    handles = [backend.follow(RUN) for _ in range(8)]
    loops = [each for each in threading.enumerate() if "portal" in each.name]
    for handle in handles:
        handle.close()
    assert len(loops) == 1
