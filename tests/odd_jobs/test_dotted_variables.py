"""Names of variables that a shell cannot hold, but Kubernetes allows."""

from __future__ import annotations

import json

import pytest

from stepset.run_status import Phase
from tests.cluster.runs import Runs
from tests.odd_jobs import OddJob
from tests.targets.making import container

ODD_JOB = OddJob(
    job={"env": {"my.var": "1", "my-var": "$(my.var)", "-x": "$(STEPSET_NODE_RANK)"}, "num_nodes": 2},
    expected="The command gets all variables, in a StatefulSet through the program env.",
    source="kubernetes v1.36 apimachinery/pkg/util/validation/validation.go (IsEnvVarName); dash 0.5.12 drops them",
)


def test_the_statefulsets_command_gets_them_through_env() -> None:
    command = container(ODD_JOB.render("statefulset"))["command"][2]
    for name in ("my.var", "my-var", "-x"):
        assert f' {name}="${{stepset_value_' in command


@pytest.mark.cluster
@pytest.mark.parametrize("runs", ["jobset", "statefulset"], indirect=True)
def test_the_command_gets_them_on_a_real_cluster(runs: Runs) -> None:
    variables = ODD_JOB.job["env"]
    program = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {list(variables)}}}))"
    status, listener = runs.run(program, env=variables, num_nodes=2)
    assert status.phase is Phase.SUCCEEDED, status
    found = [json.loads(line.text) for line in listener.lines if line.text.startswith("{")]
    expected = [{"my.var": "1", "my-var": "1", "-x": rank} for rank in ("0", "1")]
    assert sorted(found, key=lambda each: str(each["-x"])) == expected
