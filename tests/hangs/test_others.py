"""Hangs of frameworks whose collectives nothing records: the guilty rank is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pods import Pod
from tests.hangs.conftest import free_port
from tests.hangs.looks import hang_in, lines_of, pids_of, places, settled

pytestmark = pytest.mark.frameworks
HANG = {"after": 1000, "first": 1000}
MPICH = Path(__file__).resolve().parents[2] / ".venvs" / "mpich"
JAX = """
import os, time, jax, numpy
from jax.experimental import multihost_utils
RANK = int(os.environ["RANK"])
address = os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]

def load():
    if RANK == 1:
        print("here", flush=True)
        if os.environ["AT"] != "mismatch":
            time.sleep(1000) # HANGS

if os.environ["AT"] == "start":
    load()
jax.distributed.initialize(address, int(os.environ["WORLD_SIZE"]), RANK)
multihost_utils.process_allgather(numpy.ones(4))
load()
if RANK == 1 and os.environ["AT"] == "mismatch":
    multihost_utils.sync_global_devices("end") # MISMATCH
multihost_utils.process_allgather(numpy.ones(4)) # MISMATCH
"""
MPI = """
import time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 1:
    print("here", flush=True)
    HANG
world.Barrier()
"""


def line(text: str, index: int) -> int:
    """Returns the number of a line with the comment MISMATCH."""
    return [number for number, each in enumerate(text.split("\n"), 1) if each.endswith("# MISMATCH")][index]


@contextmanager
def looked_at(directory: Path, text: str, *launcher: str, env: dict[str, str]) -> Iterator[Any]:
    """Runs a program as three ranks. The value is a function that returns their hang, as soon as it is settled."""
    program = directory / "train.py"
    program.write_text(text)
    pod = Pod(directory)
    if launcher:
        more: dict[str, Any] = {"launcher": launcher, "program": [sys.executable, "-u"], "command_len": 1}
    else:
        variables = {"RANK": "{rank}", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        more = {"processes": 3, "process_env": variables}
    command = ["mpirun"] if launcher else [sys.executable]
    with pod.start(*command, str(program), env=env, hang=HANG, grace=1, **more) as running:
        running.wait_for_line(b"here")
        yield lambda: settled(lambda: places(hang_in(pod.dir, pids_of(pod.dir))))


@pytest.mark.parametrize(("at", "kind"), [("start", "NeverJoined"), ("step", "Missing")])
def test_a_rank_of_jax_that_hangs_is_named(tmp_path: Path, at: str, kind: str) -> None:
    with looked_at(tmp_path, JAX, env={"AT": at, "JAX_PLATFORMS": "cpu"}) as hang:
        assert hang() == (kind, {((1,), "sleeping", "", *lines_of(JAX))})


def test_ranks_of_jax_in_different_collectives_are_a_mismatch(tmp_path: Path) -> None:
    with looked_at(tmp_path, JAX, env={"AT": "mismatch", "JAX_PLATFORMS": "cpu"}) as hang:
        kind, guilty = hang()
    assert kind == "Mismatch"
    assert sorted((ranks, at) for ranks, _, _, at in guilty) == [((0, 2), line(JAX, -1)), ((1,), line(JAX, -2))]


@pytest.mark.parametrize("call", ["time.sleep(1000)", "world.recv(source=0)"])
def test_a_rank_of_mpi_that_hangs_is_named(tmp_path: Path, call: str) -> None:
    if not MPICH.exists():
        pytest.skip("MPICH is not installed (make setup-mpi)")
    text = MPI.replace("HANG", f"{call} # HANGS")
    env = {"MPI4PY_LIBMPI": str(MPICH / "lib" / "libmpi.so.12"), "LD_LIBRARY_PATH": str(MPICH / "lib")}
    with looked_at(tmp_path, text, str(MPICH / "bin" / "mpirun"), "-np", "3", env=env) as hang:
        kind, guilty = hang()
    assert kind == "Blocked"
    assert [(ranks, at) for ranks, _, _, at in guilty] == [((1,), at) for at in lines_of(text)]
