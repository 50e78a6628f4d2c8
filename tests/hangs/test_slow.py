"""Real ranks of gloo: a rank that needs longer in each step is named, and other ranks are not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepset.hang import SlowRanks
from stepset.run_status import RankStatus
from stepset.watch.hangs.joins import JoinTimes
from stepset.watch.lines import Splitter
from tests.hangs.conftest import Ranks

pytestmark = pytest.mark.frameworks
Start = Callable[..., Ranks]
PROGRAM = str(Path(__file__).parent / "steps.py")
ENOUGH = 60
"""The number of collectives in the events of all ranks, on which the result is based."""
ROWS = [RankStatus(f"rank {rank}", rank, f"pod-{rank // 2}", f"node {rank // 2}", "Running") for rank in range(4)]


def slow(start: Start, case: str, end: Path) -> SlowRanks | None:
    """Waits until all ranks have reported enough collectives. Returns what the reader concludes, as for two nodes."""
    (running,) = start(sys.executable, PROGRAM, case, str(end), ranks=4, hang={"after": 10, "first": 300}).running
    joins = JoinTimes()
    enough: set[int] = set()
    while len(enough) < 4:
        line = running.wait_for_line(b'{"event": "joins"')
        event: dict[str, Any] = json.loads(line.partition(b"] ")[2])
        (group,) = event["groups"]
        assert len(line) < 4096
        if len(group["seq"]) >= ENOUGH:
            enough.add(event["rank"])
        joins.see(f"pod-{event['rank'] // 2}", Splitter("node 0").feed(line + b"\n"))
    end.touch()
    assert running.end().exit_code == 0
    return joins.slow(ROWS, {row.pod: row.pod for row in ROWS}, one_clock=False)


def test_a_rank_that_needs_longer_is_named_with_its_delay(start: Start, tmp_path: Path) -> None:
    found = slow(start, "one", tmp_path / "end")
    assert found is not None
    assert (found.ranks, found.node, found.gpu) == ((2,), "node 1", "")
    assert found.last > 0.9 * found.compared
    assert 0.1 < found.delay < 0.3
    assert 0.3 < found.share < 0.7


@pytest.mark.parametrize("case", ["balanced", "sometimes", "in_turn"])
def test_no_rank_is_named_that_is_not_always_last(start: Start, tmp_path: Path, case: str) -> None:
    assert slow(start, case, tmp_path / "end") is None
