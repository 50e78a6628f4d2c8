"""MPI whose variables come from ConfigMaps, which only `pod_template` can name."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import launcher, request

KEY = {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr"}}}
ALL = {"configMapRef": {"name": "settings"}}
ODD_JOB = OddJob(
    job={
        "framework": "mpi",
        "num_nodes": 2,
        "command": ["./allreduce"],
        "pod_template": {"containers": [{"name": "node", "env": [KEY], "envFrom": [ALL]}]},
    },
    expected="mpirun passes LR to the ranks, as a variable of `env`; a note names what it cannot pass.",
    source="open-mpi/ompi v4.1.4 orte/tools/orterun/orterun.1in (-x): other variables stay on the launcher",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_mpirun_passes_the_variable(target: str) -> None:
    assert launcher(ODD_JOB.render(target))["command"][-3:] == ["-x", "LR", "./allreduce"]


def test_a_note_names_the_variables_that_it_cannot_pass() -> None:
    (note,) = (note for note in request(**ODD_JOB.job).plan.notes if "envFrom" in note)
    assert "not those of ConfigMap settings; name those that the ranks need in env" in note


def test_hydra_passes_all_variables_without_a_note() -> None:
    hydra = {**ODD_JOB.job, "framework": {"kind": "mpi", "implementation": "mpich"}}
    assert not [note for note in request(**hydra).plan.notes if "envFrom" in note]
