"""MPI on GPUs, with a launcher that is not a node and requests a GPU of its own."""

from __future__ import annotations

import pytest

from tests.odd_jobs import WITHOUT_LAUNCHER, OddJob
from tests.targets.making import container, launcher, variables_of

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "mpi", "launcher_resources": {"gpus": 1}},
        "num_nodes": 2,
        "resources_per_node": {"gpus": 2},
        "command": ["./allreduce"],
    },
    expected="The launcher sees the GPU that it requests: no variable hides it.",
    source=(
        "kubernetes v1.36 pkg/kubelet/kubelet_pods.go (GenerateRunContainerOptions): the variables of the container"
        " follow those of the device plugin, and replace them"
    ),
    refused=WITHOUT_LAUNCHER,
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_launcher_sees_its_gpu(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert container(objects, "launcher")["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "NVIDIA_VISIBLE_DEVICES" not in variables_of(launcher(objects))
