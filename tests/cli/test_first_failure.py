"""`stepset run` shows the first failure completely, and omits what launchers and stopped ranks print after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, CommandResult
from tests.cli.scripts import FLAGS

FAIL = """
import torch.distributed

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.distributed.barrier()
print("ready", flush=True)
if rank == 1:
    raise ValueError("bad batch")
torch.distributed.barrier()
"""
KILL = """
import os, signal, time

print("ready", flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
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


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path) -> None:
    for name, text in (("fail", FAIL), ("kill", KILL), ("bars", BARS)):
        (tmp_path / f"{name}.py").write_text(text)


def lines_of(result: CommandResult) -> list[str]:
    return [line for line in result.out.splitlines() if line != "[rank 0] ready" and "ready" not in line]


@pytest.mark.frameworks
@pytest.mark.local
class TestATorchrun:
    FLAGS = ("-n", "2", "-p", "2", "--framework", "torch")

    def test_shows_only_the_traceback_of_the_rank_that_failed_first(self, program: Cli, tmp_path: Path) -> None:
        ended = program("run", "fail.py", *self.FLAGS)
        assert ended.code == 1
        assert lines_of(ended) == [
            "[rank 1] Traceback (most recent call last):",
            f'[rank 1]   File "{tmp_path}/fail.py", line 9, in <module>',
            '[rank 1]     raise ValueError("bad batch")',
            "[rank 1] ValueError: bad batch",
        ]
        omitted = re.search(r"omitted after the first failure: (\d+) lines .*; stepset logs (\S+) shows", ended.err)
        assert omitted is not None
        stored = program("logs", omitted[2]).out.splitlines()
        assert len(stored) == len(ended.out.splitlines()) + int(omitted[1])
        assert any("ChildFailedError" in line for line in stored)
        assert "ranks running" not in ended.err
        assert "[rank1]" not in ended.out + ended.err

    def test_shows_everything_if_verbose(self, program: Cli) -> None:
        ended = program("run", "fail.py", *self.FLAGS, "--verbose")
        assert "ChildFailedError" in ended.out
        assert "omitted" not in ended.err

    def test_shows_the_launchers_lines_after_a_sigkill(self, program: Cli) -> None:
        ended = program("run", "kill.py", *self.FLAGS)
        assert "(SIGKILL)" in ended.out
        assert "omitted" not in ended.err


@pytest.mark.local
class TestProgressBars:
    def test_are_stored_and_shown_as_their_last_states(self, program: Cli) -> None:
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
