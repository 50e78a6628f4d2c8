"""MPICH's mpiexec with variables in the form `-genv NAME=VALUE`, which Hydra accepts beside `-genv NAME VALUE`."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "mpi", "implementation": "mpich"},
        "namespace": "default",
        "num_nodes": 2,
        "command": ["mpiexec", "-genv", "A=1", "python3", "train.py"],
    },
    expected="The agent wraps python3 train.py; before, it took python3 for the value and ran train.py.",
    source="pmodels/mpich 4.0.2 src/pm/hydra/mpiexec/utils.c (genv_fn, env_fn); executed",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_agent_wraps_the_program(target: str) -> None:
    config = agent_config(ODD_JOB.render(target), "launcher")
    assert config["launcher"] == ["mpiexec", "-genv", "A=1"]
    assert config["program"] == ["python3", "train.py"]
