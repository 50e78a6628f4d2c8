"""What whoever follows a run does when the server is gone for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepset.backends.kubernetes.follow import RunFollower
from stepset.errors import InfrastructureError
from tests.kubernetes.nowhere import RUN, nowhere


def test_a_run_that_can_be_stopped_no_more_is_said_to_go_on(tmp_path: Path) -> None:
    follower = RunFollower(nowhere(tmp_path), RUN)
    assert not follower.follow(timeout=0.1).phase.final
    with pytest.raises(InfrastructureError, match=r"^run run goes on, and cannot be stopped: server .* reached"):
        follower.cancel()
