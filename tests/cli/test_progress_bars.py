"""`stepset run` shows and stores the last state of a line that overwrites itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.scripts import FLAGS

pytestmark = pytest.mark.local

BARS = """
import os, sys, time

def draw(text):
    sys.stderr.write(text)
    sys.stderr.flush()

for epoch in range(2):
    for step in range(40):
        draw(f"\\r{step}/40 |{'#' * step}|")
        time.sleep(0.05)
    draw(f"\\r40/40 epoch {epoch}\\n")
draw("\\r1/9")
if os.environ["RANK"] == "3":
    raise ValueError("bad batch")
time.sleep(600)
"""


def test_progress_bars_are_stored_and_shown_as_their_last_states(program: Cli, tmp_path: Path) -> None:
    (tmp_path / "bars.py").write_text(BARS)
    ended = program("run", "bars.py", *FLAGS)
    assert ended.code == 1
    shown = [line for line in ended.out.splitlines() if line.startswith("[rank 3]")]
    assert shown[:3] == [
        "[rank 3] 40/40 epoch 0",
        "[rank 3] 40/40 epoch 1",
        "[rank 3] 1/9Traceback (most recent call last):",
    ]
    assert "\r" not in ended.out + ended.err
    assert "#" not in ended.out
    (name,) = re.findall(r"stepset logs (\S+) --ranks 3", ended.err)
    stored = program("logs", name).out
    assert [line for line in stored.splitlines() if line.startswith("[rank 3]")] == shown
    assert "\r" not in stored
