"""A rank that writes nonsense to the files of its hook, or locks the files, affects only its own report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from tests.hangs.conftest import Ranks, main_process, stack

Start = Callable[..., Ranks]
HOSTILE = """
import fcntl, os, signal, sys, time
def planted(): time.sleep(1000)
if os.environ["RANK"] == "0":
    planted()
(file,) = [fd for fd in range(3, 20) if "stepset-stacks" in os.path.realpath("/proc/self/fd/%d" % fd)]
if sys.argv[1] == "locks":
    fcntl.flock(file, fcntl.LOCK_EX)
elif sys.argv[1] == "ignores":
    signal.pthread_sigmask(signal.SIG_BLOCK, [50])
elif sys.argv[1] == "forks":
    for _ in range(200):
        if not os.fork():
            planted()
elif sys.argv[1] == "garbage":
    while True:
        os.write(file, os.urandom(1 << 16) + b"\\nThread 0x1 (most recent call first):\\n" * 999)
        if os.fstat(file).st_size > 100 << 20:
            os.ftruncate(file, 0)
planted()
"""


_LATER = [pytest.param(how, marks=pytest.mark.frameworks) for how in ("ignores", "garbage", "forks")]
"""Not part of the gate."""


@pytest.mark.parametrize("how", ["locks", *_LATER])
def test_a_hostile_rank_affects_only_its_own_report(start: Start, how: str) -> None:
    ranks = start(sys.executable, "-c", HOSTILE, how, hang={"after": 1, "first": 3})
    events = ranks.stalled(0, 1)
    assert stack(main_process(events[0])) == ["planted", "<module>"]
    assert len(json.dumps(events[1])) < 17 << 10
    assert main_process(events[1])["kind"] == "rank"
