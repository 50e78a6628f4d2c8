"""The status of a local run contains the hang that the agents' events show, until a rank makes progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.backends.local.tracker import Tracker
from stepset.frameworks import make_plan
from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from stepset.watch.lines import Splitter
from tests.watch.hangs.test_stalled import SLEEPS, WAITS

JOB = {"framework": "torch", "num_nodes": 2, "procs_per_node": 1, "script": "train.py"}
SPECS = [
    PodSpec(f"node-{n}", "node", n, f"node {n}", f"node {n}", Path("/"), env={}, command=(), config={}) for n in (0, 1)
]


def tracker() -> Tracker:
    """The tracker of a run with two nodes of one rank."""
    found = Tracker(make_plan(parse_job(JOB)), RunStatus("a-1", "a", "local", Phase.RUNNING, world_size=2))
    begin(found, 0)
    return found


def begin(found: Tracker, attempt: int) -> None:
    found.begin(SPECS, attempt)
    for spec in SPECS:
        found.pod_started(spec, 900.0)
        output(found, spec.index, {"event": "started", "rank": spec.index})


def output(found: Tracker, node: int, item: dict[str, Any] | str, now: float = 1000.0) -> None:
    line = item if isinstance(item, str) else f"[stepset] {json.dumps(item)}"
    found.output(SPECS[node], Splitter(f"node {node}").feed(f"{line}\n".encode()), now)


def hang_of(found: Tracker) -> Any:
    return found.status(lambda source: ("", None)).hang


def test_a_hang_is_in_the_status_until_a_rank_prints() -> None:
    found = tracker()
    output(found, 0, WAITS)
    assert hang_of(found) is None
    found.changed = False
    output(found, 1, SLEEPS)
    assert found.changed
    assert [group.ranks for group in hang_of(found).guilty] == [(1,)]
    assert hang_of(found).guilty[0].node == "node 1"
    output(found, 1, "[rank 1] step 119", now=1010.0)
    assert hang_of(found) is None
    assert found.known_hang(1020.0) is not None
    assert found.known_hang(1100.0) is None


def test_the_next_attempt_begins_without_the_hang() -> None:
    found = tracker()
    output(found, 0, WAITS)
    output(found, 1, SLEEPS)
    assert hang_of(found) is not None
    begin(found, 1)
    assert hang_of(found) is None
    assert found.known_hang(1000.0) is None
