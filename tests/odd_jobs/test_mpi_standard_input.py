"""An MPI job whose program reads standard input: in a pod there is none, unless the job's own text provides it."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import container, launcher

TEXT = "mpirun --stdin 0 ./reads < /data/input.txt"
ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 2, "command": ["sh", "-c", TEXT]},
    expected="The launcher's text redirects a file to mpirun; no container has a standard input of its own.",
    source="kubernetes v1.36 staging/src/k8s.io/api/core/v1/types.go, Container.stdin: if not set, reads result in EOF",
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_text_is_unchanged_and_no_container_has_a_standard_input(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert launcher(objects)["command"] == ["sh", "-c", TEXT]
    for group in ("launcher", "node"):
        assert not {"stdin", "stdinOnce", "tty"} & container(objects, group).keys()
