"""MPI on GPUs, with a launcher that is not a node, requests resources, and whose image asks for every GPU."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import container, env, launcher, variables_of

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = {"cpu": 1, "memory": "1Gi"}
ODD_JOB = OddJob(
    job={
        "framework": {"kind": "mpi", "launcher_resources": OWN},
        "num_nodes": 2,
        "resources_per_node": {"gpus": 2, "memory": "8Gi"},
        "command": ["./allreduce"],
    },
    expected="The launcher requests its own resources and sees no GPU; the nodes request and see theirs.",
    source=(
        "kubeflow/mpi-operator v0.8.0 pkg/controller/mpi_job_controller.go, nvidiaDisableEnvVars; NVIDIA container"
        " toolkit: void and an empty value have the same effect as no variable"
    ),
    refused=WITHOUT_LAUNCHER,
)
TARGETS = pytest.mark.parametrize("target", ODD_JOB.targets)


@TARGETS
def test_the_launcher_requests_its_own_resources(target: str) -> None:
    objects = ODD_JOB.render(target)
    expected = {"cpu": "1", "memory": "1Gi"}
    assert container(objects, "launcher")["resources"] == {"requests": expected, "limits": expected}
    assert container(objects)["resources"]["limits"] == {GPU: "2", "memory": "8Gi"}


@TARGETS
def test_the_launcher_sees_no_gpu_and_the_ranks_do_not_get_its_variable(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert variables_of(launcher(objects))[VISIBLE] == "void"
    assert VISIBLE not in env(objects)
    assert VISIBLE not in launcher(objects)["command"]


@TARGETS
def test_a_launcher_that_is_a_node_sees_the_gpus_of_a_node(target: str) -> None:
    objects = ODD_JOB.render(target, framework={"kind": "mpi", "run_launcher_as_node": True})
    assert container(objects, "launcher")["resources"] == container(objects, "node")["resources"]
    assert VISIBLE not in variables_of(launcher(objects))


def test_both_at_once_are_refused() -> None:
    framework = {"kind": "mpi", "run_launcher_as_node": True, "launcher_resources": OWN}
    with pytest.raises(BadInputError, match="with run_launcher_as_node the launcher has resources_per_node"):
        ODD_JOB.render("jobset", framework=framework)
