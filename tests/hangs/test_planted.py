"""Ranks of torch hang in many ways, and the guilty ranks and their line are named. Ranks that work do not hang."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stepset.agent.hangs.processes import read_process
from stepset.hang import Hang, HangKind
from tests.agent.pods import Pod, Running
from tests.hangs.innocent import INNOCENT
from tests.hangs.looks import hang_in, lines_of, pids_of, places, settled
from tests.hangs.planted import PLANTED
from tests.waiting import until

pytestmark = pytest.mark.frameworks
FORKING = str(Path(__file__).parent / "forking.py")


class Ranks:
    """Ranks of a pod, which run one program after the other."""

    def __init__(self, directory: Path, running: Running) -> None:
        self._directory = directory
        self._running = running
        self._pids: list[int] = []

    def run(self, source: str, size: int = 2, exited: Sequence[int] = ()) -> None:
        """Starts a program, and waits until a rank prints "here", and until some ranks have exited."""
        program = self._directory / "train.py"
        program.write_text(source)
        for each in self._directory.glob("train.py.*"):
            each.unlink()
        (self._directory / "requests").write_text(json.dumps({"path": str(program), "size": size}))
        self._running.wait_for_line(b"forked")
        self._pids = pids_of(self._directory / "agent")
        self._running.wait_for_line(b"here")
        assert until(lambda: not any(read_process(self._pids[rank]) for rank in exited))

    def hang(self, *times: float) -> Hang | None:
        """Returns the hang of the ranks, after samples at some times."""
        return hang_in(self._directory / "agent", self._pids, times or (0.0, 1.0))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A pod whose ranks have imported torch."""
    directory = tmp_path_factory.mktemp("pod")
    os.mkfifo(directory / "requests")
    pod = Pod(directory)
    command = [sys.executable, FORKING, str(directory / "requests"), str(pod.dir)]
    with pod.start(*command, hang={"after": 1000, "first": 1000}, grace=1) as running:
        running.wait_for_line(b"imported")
        yield Ranks(directory, running)


@pytest.mark.parametrize("name", PLANTED)
def test_the_guilty_ranks_and_their_line_are_named(ranks: Ranks, name: str) -> None:
    case = PLANTED[name]
    ranks.run(case.text, case.size, case.exited)
    found = settled(lambda: places(ranks.hang()))
    assert found is not None
    kind, guilty = found
    assert (kind, sorted(rank for ranks, *_ in guilty for rank in ranks)) == (case.kind, list(case.guilty))
    assert sorted({line for *_, line in guilty if line}) == list(lines_of(case.text))
    assert all(state == case.state for _, state, *_ in guilty) or not case.state
    assert all(process == case.process for *_, process, _ in guilty) or not case.process


@pytest.mark.parametrize("name", INNOCENT)
def test_ranks_that_work_do_not_hang(ranks: Ranks, name: str) -> None:
    ranks.run(INNOCENT[name])
    time.sleep(1.0)  # until the other rank waits
    found = [ranks.hang(0.0, 2.0, 5.0) for _ in range(2)]  # as the agent, because the machine may be busy
    assert {each and each.kind for each in found} <= {None, HangKind.BUSY}
