"""How many processes a node runs, framework by framework."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.frameworks.planned import Plan

GPUS, MIG, CPUS = {"gpus": 4, "cpu": 8}, {"nvidia.com/mig-1g.5gb": 3, "cpu": 8}, {"cpu": "2500m"}
NONE = {"kind": "torch", "launcher": "none"}


@pytest.mark.parametrize(
    ("procs", "resources", "expected", "counted"),
    [
        ("auto", {}, "1", 1),
        ("auto", CPUS, "3", 3),
        ("auto", GPUS, "auto", 4),  # torchrun counts GPUs itself
        ("gpu", GPUS, "gpu", 4),
        ("cpu", GPUS, "8", 8),
        ("auto", MIG, "3", 3),  # but not MIG slices
        ("gpu", MIG, "3", 3),
        (2, GPUS, "2", 2),
        (5, {}, "5", 5),
        ("auto", {"gpus": 0, "cpu": 6}, "6", 6),
    ],
)
def test_torchrun_gets_the_number_of_processes(
    procs: Any, resources: dict[str, Any], expected: str, counted: int
) -> None:
    plan = Plan("torch", procs_per_node=procs, resources_per_node=resources)
    assert plan.env()["PET_NPROC_PER_NODE"] == expected
    assert plan.plan.world.procs_per_node == counted


# framework -> processes for (nothing, 2.5 CPUs, 4 GPUs and 8 CPUs, those with procs_per_node: 2, those with cpu)
COUNTS: list[tuple[Any, tuple[int, int, int, int, int]]] = [
    ("torch", (1, 3, 4, 2, 8)),
    (NONE, (1, 3, 4, 2, 8)),
    ("deepspeed", (1, 3, 4, 2, 8)),
    ({"kind": "deepspeed", "launcher": "deepspeed"}, (1, 3, 4, 2, 8)),
    ({"kind": "deepspeed", "launcher": "mpirun"}, (1, 1, 4, 2, 8)),
    ("mpi", (1, 1, 4, 2, 8)),
    ("mlx", (1, 1, 4, 2, 8)),
    ({"kind": "mlx", "backend": "mpi"}, (1, 1, 4, 2, 8)),
    ("xgboost", (1, 1, 4, 2, 8)),
    ("jax", (1, 1, 1, 1, 1)),  # one process uses all devices of its node
    ("plain", (1, 1, 1, 2, 8)),
]


@pytest.mark.parametrize(("framework", "counts"), COUNTS)
def test_processes_are_counted_from_the_requests_of_a_pod(framework: Any, counts: tuple[int, ...]) -> None:
    jobs: list[dict[str, Any]] = [
        {},
        {"resources_per_node": CPUS},
        {"resources_per_node": GPUS},
        {"resources_per_node": GPUS, "procs_per_node": 2},
        {"resources_per_node": GPUS, "procs_per_node": "cpu"},
    ]
    for job, count in zip(jobs, counts, strict=True):
        world = Plan(framework, num_nodes=2, **job).plan.world
        assert (world.procs_per_node, world.size) == (count, 2 * count)


@pytest.mark.parametrize("framework", [f for f, _ in COUNTS if f != "jax"])
def test_gpu_without_a_gpu_is_an_error(framework: Any) -> None:
    with pytest.raises(BadInputError, match=r"^procs_per_node: gpu, but resources_per_node has no accelerator; add"):
        Plan(framework, procs_per_node="gpu", resources_per_node=CPUS)


@pytest.mark.parametrize("framework", [f for f, _ in COUNTS if f != "jax"])
@pytest.mark.parametrize(("procs", "cpu"), [("cpu", "16Gi"), (4097, 1)])
def test_too_many_processes_are_rejected_before_they_are_listed(framework: Any, procs: Any, cpu: Any) -> None:
    with pytest.raises(BadInputError, match=r"^procs_per_node: \d+ processes a node are more than 4096; check"):
        Plan(framework, num_nodes=2, procs_per_node=procs, resources_per_node={"cpu": cpu})


def test_the_merged_resources_count() -> None:
    """kubeflow/trainer#3974: an override of the memory must not remove the GPUs."""
    template = {"containers": [{"name": "node", "resources": {"limits": {"memory": "64Gi"}}}]}
    plan = Plan("torch", resources_per_node={"gpus": 4}, pod_template={"spec": template})
    assert plan.env()["PET_NPROC_PER_NODE"] == "auto"
    assert plan.plan.group("node").resources.limits == {"nvidia.com/gpu": "4", "memory": "64Gi"}
    more = {"containers": [{"name": "node", "resources": {"limits": {"amd.com/gpu": 2}}}]}
    assert Plan("mpi", pod_template={"spec": more}).plan.world.procs_per_node == 2


def test_another_containers_gpus_do_not_count() -> None:
    template = {"containers": [{"name": "sidecar", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}
    assert Plan("torch", pod_template={"spec": template}).env()["PET_NPROC_PER_NODE"] == "1"
