"""Hangs of programs without torch, which only their output and the state of their processes show."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hangs.conftest import Ranks, main_process, stack

Start = Callable[..., Ranks]
SOON = {"after": 1, "first": 2}
STEP = "import json, os, sys, time\ndef step(n): print(json.dumps({'stepset': {'step': n}}), flush=True)\n"


def test_a_silent_rank_is_reported_once_the_first_step_is_due(start: Start) -> None:
    script = "import os, time\ndef planted(): time.sleep(1000)\nplanted()"
    ranks = start(sys.executable, "-c", script, hang=SOON)
    events = ranks.stalled(0, 1)
    assert [stack(main_process(events[rank])) for rank in (0, 1)] == [["planted", "<module>"]] * 2
    assert events[0]["silent"] >= 2
    assert (events[0]["again"], events[0]["longest"]) == (0, 0)
    assert ranks.stalled(0, 1)[0]["again"] == 1
    assert events[0]["master"].startswith("127.0.0.1:")


def test_a_rank_without_python_is_reported_with_its_state(start: Start) -> None:
    process = main_process(start("/bin/sh", "-c", "exec sleep 1000", ranks=1, hang=SOON).stalled(0)[0])
    assert (process["name"], process["state"], process["why"]) == ("sleep", "S", "sleep is not Python")
    assert process["threads"] == []
    assert not process["busy"]


def test_the_event_has_at_most_16_kib_and_no_values_of_secrets(start: Start) -> None:
    script = (
        "import threading, time\ndef a_secret_value(n):\n"
        "    if n: a_secret_value(n - 1)\n    time.sleep(1000)\n"
        "for _ in range(90): threading.Thread(target=a_secret_value, args=(80,), daemon=True).start()\n"
        "a_secret_value(80)"
    )
    more = {"env": {"TOKEN": "a_secret_value"}, "secrets": ["TOKEN"]}
    ranks = start(sys.executable, "-c", script, ranks=1, hang=SOON, **more)
    event = ranks.stalled(0)[0]
    assert len(json.dumps(event)) < 17 << 10
    assert "a_secret_value" not in json.dumps(event)
    assert stack(main_process(event))[-1] == "<module>"


@pytest.mark.frameworks
def test_a_pause_of_the_usual_length_is_not_reported_and_a_longer_one_is(start: Start) -> None:
    script = STEP + "for n in range(6): step(n); time.sleep(1.5)\nprint('last', flush=True)\ntime.sleep(1000)"
    ranks = start(sys.executable, "-c", script, ranks=1, hang=SOON)
    ranks.running[0].wait_for_line(b"last")
    assert b"stalled" not in ranks.running[0].printed
    event = ranks.stalled(0)[0]
    assert event["silent"] >= 5 * 1.5
    assert 1.4 < event["longest"] < 4


@pytest.mark.frameworks
def test_a_growing_checkpoint_is_progress_and_output_resumes(start: Start, tmp_path: Path) -> None:
    script = STEP + (
        "step(1)\npath = os.environ['STEPSET_CHECKPOINT_DIR'] + '/model'\n"
        "for n in range(60): open(path, 'a').write('x'); time.sleep(0.1)\n"
        "print('saved', flush=True)\ntime.sleep(20)\nprint('on', flush=True)"
    )
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    env = {"STEPSET_CHECKPOINT_DIR": str(directory)}
    ranks = start(sys.executable, "-c", script, ranks=1, hang=SOON, env=env)
    ranks.running[0].wait_for_line(b"saved")
    assert b"stalled" not in ranks.running[0].printed
    ranks.stalled(0)
    resumed = json.loads(ranks.running[0].wait_for_line(b'"resumed"').partition(b"] ")[2])
    assert resumed["at"] > 1e9
    assert ranks.running[0].end().exit_code == 0
