"""What a follower does when the server is gone for good, and what is left of it when it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stepset.backends.kubernetes.stop import suspend
from stepset.errors import InfrastructureError
from tests.kubernetes.nowhere import RUN, nowhere


def test_a_run_that_can_be_stopped_no_more_is_said_to_go_on(tmp_path: Path) -> None:
    handle = nowhere(tmp_path).follow(RUN)
    handle.leave()
    assert not handle.wait().phase.final
    with pytest.raises(InfrastructureError, match=r"^run run goes on, and cannot be stopped: server .* reached"):
        handle.cancel()


def test_no_thread_outlives_a_call_or_a_run_that_is_not_followed_any_longer(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    backend = nowhere(tmp_path)
    with pytest.raises(InfrastructureError, match="reached"):
        backend.status("run")
    handle = backend.follow(RUN)
    assert set(threading.enumerate()) > before
    handle.cancel(suspend)  # a server that does not answer is asked again
    handle.close()
    assert set(threading.enumerate()) == before


def test_runs_that_are_followed_at_the_same_time_share_one_thread(tmp_path: Path) -> None:
    backend = nowhere(tmp_path)
    handles = [backend.follow(RUN) for _ in range(8)]
    loops = [each for each in threading.enumerate() if "portal" in each.name]
    for handle in handles:
        handle.close()
    assert len(loops) == 1
