"""Each framework really trains on this machine, and its result proves that every rank took part.

`rank_sum` is an all-reduced sum of rank + 1: 10 in a world of 4, 3 in one of 2, and in no other. Those on torch are in
test_on_torch.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import stepset
from tests.frameworks.cases import CASES
from tests.frameworks.cases.case import Training
from tests.training.conftest import program, train


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if isinstance(case.training, Training)])
def test_every_rank_takes_part(kind: str) -> None:
    training = CASES[kind].training
    assert isinstance(training, Training)
    result = train(training.script, kind, procs=training.procs)
    assert result.items() >= training.result.items()


def test_every_framework_trains_in_one_of_these_tests() -> None:
    for case in CASES.values():
        if isinstance(case.training, str):
            path, name = case.training.split("::")
            assert f"\ndef {name}(" in (Path(__file__).parents[2] / path).read_text("utf-8")


def test_mlx_runs_under_mpirun() -> None:
    program("mpirun.openmpi")
    result = train("mlx/train.py", {"kind": "mlx", "backend": "mpi"}, env={"MLX_MPI_LIBNAME": "libmpi.so.40"})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)


@pytest.mark.parametrize("launcher_as_node", [False, True])
def test_open_mpi_spans_the_nodes(launcher_as_node: bool) -> None:
    program("mpirun.openmpi")
    result = train("mpi/train.py", {"kind": "mpi", "run_launcher_as_node": launcher_as_node})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert "Open MPI" in result["library"]


def test_mpich_spans_the_nodes(mpich_program: Path) -> None:
    job = {
        "name": "mpich",
        "framework": {"kind": "mpi", "implementation": "mpich"},
        "num_nodes": 2,
        "procs_per_node": 2,
        "command": [program("mpirun.mpich"), str(mpich_program)],
        "agent": True,
        "deadline": "2m",
    }
    status = stepset.run(job)
    assert (status.result["world_size"], status.result["rank_sum"]) == (4, 10)


@pytest.mark.smoke
def test_mpich_of_pypi_spans_the_nodes(mpich_from_pypi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{mpich_from_pypi / 'bin'}{os.pathsep}{os.environ['PATH']}")
    library = str(mpich_from_pypi / "lib" / "libmpi.so.12")
    result = train("mpi/train.py", {"kind": "mpi", "implementation": "mpich"}, env={"MPI4PY_LIBMPI": library})
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (4, 10, True)
    assert "MPICH" in result["library"]


@pytest.mark.smoke
def test_a_plain_command_runs_in_every_pod(tmp_path: Path) -> None:
    result = train("plain/train.py", "plain", procs="auto", checkpoint_dir=str(tmp_path))
    assert result["nodes"] == 2
