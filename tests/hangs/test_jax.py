"""Hangs of JAX, whose collectives nothing records: the stacks name the guilty rank."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pods import Pod
from tests.hangs.conftest import free_port
from tests.hangs.looks import hang_in, lines_of, pids_of, places, settled

pytestmark = pytest.mark.frameworks
HANG = {"after": 1000, "first": 1000}
JAX = """
import os, time, jax, numpy
from jax.experimental import multihost_utils
RANK = int(os.environ["RANK"])
address = os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]

def load():
    if RANK == 1:
        print("here", flush=True)
        time.sleep(1000) # HANGS

if os.environ["AT"] == "start":
    load()
jax.distributed.initialize(address, int(os.environ["WORLD_SIZE"]), RANK)
multihost_utils.process_allgather(numpy.ones(4))
load()
multihost_utils.process_allgather(numpy.ones(4))
"""


@pytest.mark.parametrize(("at", "kind"), [("start", "NeverJoined"), ("step", "Missing")])
def test_a_rank_of_jax_that_hangs_is_named(tmp_path: Path, at: str, kind: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(JAX)
    pod = Pod(tmp_path)
    variables = {"RANK": "{rank}", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = {"AT": at, "JAX_PLATFORMS": "cpu"}
    config: dict[str, Any] = {"processes": 3, "process_env": variables, "hang": HANG, "grace": 1}
    with pod.start(sys.executable, str(program), env=env, **config) as running:
        running.wait_for_line(b"here")
        found = settled(lambda: places(hang_in(pod.dir, pids_of(pod.dir))))
    assert found == (kind, {((1,), "sleeping", "", *lines_of(JAX))})
