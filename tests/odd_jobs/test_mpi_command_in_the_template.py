"""MPI jobs whose `pod_template` has a command of its own in the container `node`."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere

WORDS = (
    "pod_template.containers.node.command: would replace the ssh servers of the nodes and the mpirun of the launcher;"
    " use the job's script, module or command"
)


def node(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "node", **fields}]}


ODD_JOB = OddJob(
    job={
        "framework": "mpi",
        "num_nodes": 2,
        "procs_per_node": 2,
        "command": ["mpirun", "./a.out"],
        "pod_template": node(command=["./b.out"]),
    },
    expected="The job is refused; before, each pod ran the other program once, without MPI, and the run succeeded.",
    source="kubernetes v1.36 docs, strategic merge patch: a list of strings is replaced",
    refused=everywhere(WORDS),
)


@pytest.mark.parametrize("target", ["jobset", "trainjob", "volcano"])
@pytest.mark.parametrize("template", [node(command=["./b.out"]), node(command=None), node(**{"$patch": "replace"})])
@pytest.mark.parametrize("job", [{}, {"framework": {"kind": "deepspeed", "launcher": "mpirun"}, "command": ["t.py"]}])
def test_the_ssh_servers_and_mpirun_must_remain(target: str, template: dict[str, Any], job: dict[str, Any]) -> None:
    with pytest.raises(BadInputError) as refused:
        ODD_JOB.render(target, pod_template=template, **job)
    assert refused.value.problems == (WORDS,)
    assert ODD_JOB.render(target, pod_template=node(args=["-v"]), **job)
    assert ODD_JOB.render(target, pod_template={"spec": node(image="other:1")}, **job)


@pytest.mark.parametrize("framework", [{"kind": "torch", "launcher": "none"}, "plain", "mlx", "xgboost"])
def test_a_command_must_not_replace_the_agent_that_starts_several_processes(framework: Any) -> None:
    job = {"framework": framework, "command": ["python3", "t.py"]}
    with pytest.raises(BadInputError) as refused:
        ODD_JOB.render("jobset", **job)
    assert refused.value.problems == (
        "pod_template.containers.node.command: would replace stepset's agent, which starts 2 processes in each pod; use"
        " the job's script, module or command, or set procs_per_node: 1",
    )
    assert ODD_JOB.render("jobset", **job, procs_per_node=1)
