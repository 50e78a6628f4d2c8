"""A rank that writes forged events into its agent's pipe affects its own run's report only, and never ends stepset."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.local.gang import MOST_RANKS
from stepset.watch.agent_events import read_events
from tests.cli.conftest import STEPSET
from tests.fuzzing import FUZZED

FORGED = [
    {"event": "exited", "rank": 0, "exit_code": [1], "signal": {}, "at": "x"},
    {"event": "exited", "rank": 10**9, "exit_code": 0},
    {"event": "exited", "rank": -1},
    {"event": "started", "rank": 0, "pid": "me"},
    {"event": "failed", "rank": 0, "at": 10**400, "kind": ["x"], "error": {}},
    {"event": "result", "result": [[1]]},
    {"event": "ready"},
]
SCRIPT = """
import json, os, sys
directory = os.path.dirname(os.environ["STEPSET_RESULT_FILE"])
with open(os.path.join(directory, "out"), "w") as pipe:
    for event in json.load(open(sys.argv[1])):
        pipe.write("[stepset] " + json.dumps(event) + "\\n")
        pipe.flush()
raise ValueError("mine")
"""


@pytest.mark.local
def test_a_run_with_forged_events_ends_with_its_own_error_and_can_be_listed(tmp_path: Path) -> None:
    script, events = tmp_path / "train.py", tmp_path / "events.json"
    script.write_text(SCRIPT)
    events.write_text(json.dumps(FORGED))
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    words = [STEPSET, "run", script, "--", events]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "src/stepset" not in done.stderr, "no traceback of stepset"
    (listed,) = json.loads(subprocess.check_output([STEPSET, "list", "-o", "json"], env=env, timeout=60))["items"]
    assert [rank["rank"] for rank in listed["ranks"]] == [0]


LONG = st.just(10_000).map("x".__mul__)  # Hypothesis warns of a strategy whose repr contains a long text
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | LONG,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("rank", "exit_code", "signal", "pid", "at", "error", "kind", "missing", "other")


@FUZZED
@given(st.lists(st.fixed_dictionaries({"event": st.text()}, optional=dict.fromkeys(FIELDS, JSON)), max_size=3))
def test_any_event_has_values_of_the_expected_types(events: list[dict[str, Any]]) -> None:
    for event in read_events(events, MOST_RANKS):
        assert set(event) <= {"event", "rank", "exit_code", "signal", "pid", "at", "error", "kind", "missing"}
        assert 0 <= event.get("rank", 0) < MOST_RANKS
        assert all(0 <= event.get(name, 0) < 256 for name in ("exit_code", "signal"))
        assert isinstance(event.get("at", 0.0), float)
        assert all(len(event.get(name, "")) <= 4096 for name in ("error", "kind"))
        assert all(isinstance(peer, str) for peer in event.get("missing", ()))
