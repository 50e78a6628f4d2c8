"""`stepset logs -f` in a terminal shows a progress bar while it changes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import STEPSET, Cli

SCRIPT = """
import pathlib, sys, time
print("begin", flush=True)
for step in range(600):
    sys.stderr.write(f"\\r{step}/600")
    sys.stderr.flush()
    if pathlib.Path("end").exists():
        break
    time.sleep(0.05)
sys.stderr.write("\\rdone at last\\n")
"""


@pytest.mark.local
def test_a_progress_bar_is_a_row_that_is_drawn_again(program: Cli, tmp_path: Path) -> None:
    (tmp_path / "bar.py").write_text(SCRIPT)
    assert program("run", "bar.py", "--framework", "plain", "-d").code == 0
    ours, theirs = pty.openpty()
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home"), "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen([STEPSET, "logs", "bar", "-f"], cwd=tmp_path, env=env, stdout=theirs) as follower:
        os.close(theirs)
        seen, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # the terminal was closed
                    break
                seen += data
            if seen.count(b"/600") >= 2:
                (tmp_path / "end").touch()
        follower.wait(30)
    os.close(ours)
    assert follower.returncode == 0
    assert b"[rank 0] begin\r\n" in seen
    assert seen.count(b"/600") >= 2, seen
    assert seen.rstrip().endswith(b"[rank 0] done at last") or b"done at last\r\n" in seen, seen
    assert seen.rpartition(b"/600")[2].startswith(b"\r\x1b[K"), seen
