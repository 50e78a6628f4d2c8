"""MPICH with the launcher as a node, and variables whose names a shell cannot hold: a shell starts sshd first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from stepset.plan.expand import expand
from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import launcher

VARIABLES = {"my.var": "a b'$(x)\"", "my-var": "2", "-x": "3", "PPID": "4", "plain": "5"}
ODD_JOB = OddJob(
    job={
        "framework": {"kind": "mpi", "implementation": "mpich", "run_launcher_as_node": True},
        "namespace": "default",
        "num_nodes": 2,
        "command": ["./allreduce"],
        "env": VARIABLES,
    },
    expected="mpiexec.hydra, and by it every rank, gets all variables of the job.",
    source="kubernetes v1.36 apimachinery/pkg/util/validation/validation.go (IsEnvVarName); dash 0.5.12 drops them",
    refused=WITHOUT_LAUNCHER,
)
TARGETS = pytest.mark.parametrize("target", ODD_JOB.targets)
PRINT = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
IN_POD_TEMPLATE = {"containers": [{"name": "node", "env": [{"name": k, "value": v} for k, v in VARIABLES.items()]}]}


@TARGETS
@pytest.mark.parametrize("more", [{}, {"env": {}, "pod_template": IN_POD_TEMPLATE}], ids=["env", "pod_template"])
def test_the_command_behind_the_shell_gets_them(target: str, more: dict[str, Any]) -> None:
    words = launcher(ODD_JOB.render(target, **more))["command"]
    shell = [expand(word, VARIABLES) for word in words[words.index("/bin/sh") : words.index("mpiexec.hydra")]]
    # This machine has no configuration of the run's ssh server.
    assert "/usr/sbin/sshd -e -f" in shell[2]
    shell[2] = shell[2].replace("/usr/sbin/sshd", "true")
    values = {"PATH": os.environ["PATH"], **VARIABLES}
    done = subprocess.run([*shell, *PRINT], env=values, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {name: found.get(name) for name in VARIABLES} == VARIABLES


@TARGETS
def test_no_other_command_is_inserted_without_such_variables(target: str) -> None:
    words = launcher(ODD_JOB.render(target, env={"plain": "5"}))["command"]
    assert words[words.index("sshd") + 1] == "mpiexec.hydra"
