"""The number of processes per node, framework by framework."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.spec import parse_job
from tests.frameworks.cases import FORMS
from tests.frameworks.cases.case import Form
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


@pytest.mark.parametrize("form", FORMS)
def test_processes_are_counted_from_the_requests_of_a_pod(form: Form) -> None:
    jobs: list[dict[str, Any]] = [
        {},
        {"resources_per_node": CPUS},
        {"resources_per_node": GPUS},
        {"resources_per_node": GPUS, "procs_per_node": 2},
        {"resources_per_node": GPUS, "procs_per_node": "cpu"},
    ]
    for job, count in zip(jobs, form.processes, strict=True):
        world = Plan(form.framework, num_nodes=2, **job).plan.world
        assert (world.procs_per_node, world.size) == (count, 2 * count)


@pytest.mark.parametrize("framework", [form.framework for form in FORMS if form.obeys])
def test_gpu_without_a_gpu_is_an_error(framework: Any) -> None:
    with pytest.raises(BadInputError, match=r"^procs_per_node: gpu, but resources_per_node has no accelerator; add"):
        Plan(framework, procs_per_node="gpu", resources_per_node=CPUS)


@pytest.mark.parametrize("framework", [form.framework for form in FORMS if form.obeys])
@pytest.mark.parametrize(("procs", "cpu"), [("cpu", "16Gi"), (4097, 1)])
def test_too_many_processes_are_rejected_before_they_are_listed(framework: Any, procs: Any, cpu: Any) -> None:
    with pytest.raises(BadInputError, match=r"^procs_per_node: \d+ processes per node are more than 4096; check"):
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


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"agent": False, "command": ["./solver"]}, "as the job requests"),
        ({"agent": False, "command": ["python", "a.py"]}, "as the job requests"),
        ({"command": ["./solver"]}, "because './solver' is not Python"),
    ],
)
def test_a_note_states_once_what_a_run_without_the_agent_lacks(job: dict[str, Any], why: str) -> None:
    plan = make_plan(parse_job({"framework": "plain", "num_nodes": 2, **job}))
    assert plan.notes == (
        f"agent: off, {why}: the run reports no result, no progress and no cause of a failure, and its pods do not wait"
        " for each other; set agent: true if the image has python3",
    )


def test_a_run_with_the_agent_has_no_such_note() -> None:
    assert make_plan(parse_job({"framework": "plain", "command": ["python", "a.py"]})).notes == ()
    assert make_plan(parse_job({"framework": "plain", "agent": True, "command": ["./solver"]})).notes == ()


@pytest.mark.parametrize("hang", ["off", {}, {"after": "10m"}, {"after": "5s", "first": "30m"}, {"action": "fail"}])
def test_a_job_whose_times_of_a_hang_are_clear_has_no_note(hang: object) -> None:
    assert make_plan(parse_job({"framework": "plain", "command": ["python", "a.py"], "hang": hang})).notes == ()


def test_a_note_states_that_a_short_time_without_progress_does_not_apply_to_the_start() -> None:
    job = {"framework": "torch", "script": "a.py", "hang": {"after": "5s", "action": "fail"}}
    assert make_plan(parse_job(job)).notes == (
        "hang: after: 5s applies only from the first step on, which is a reported step or a finished collective; a hang"
        " before the first step is reported after first: 30m",
    )


COUNTING = [form.framework for form in FORMS if form.counts_devices]
CLAIM = {"containers": [{"name": "node", "resources": {"claims": [{"name": "gpus"}]}}]}
# Resources of a node with 8 CPUs -> processes per node for `auto`.
UNUSUAL: list[tuple[dict[str, Any], int]] = [
    ({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 4096, "volcano.sh/vgpu-cores": 50}, 2),
    ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}, 2),
    ({"nvidia.com/gpumem": 3000}, 1),
    ({"aliyun.com/gpu-mem": 8}, 1),
    ({"nvidia.com/gpu.shared": 2}, 1),
    ({"google.com/tpu": 4}, 1),
    ({"aws.amazon.com/neuroncore": 32, "vpc.amazonaws.com/efa": 8}, 32),
    ({"cambricon.com/mlu": 4}, 4),
    ({"nvidia.com/gpu": 8, "rdma/hca": 8}, 8),
]
UNKNOWN: list[dict[str, Any]] = [
    {"resources_per_node": {"aws.amazon.com/neuron": 16}},
    {"resources_per_node": {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1}},
    {"pod_template": {"spec": CLAIM}},
]
INVALID: list[tuple[dict[str, Any], str]] = [
    (
        {"resources_per_node": {"nvidia.com/gpu": "0.5"}},
        "resources_per_node: nvidia.com/gpu: 0.5 is not a whole number",
    ),
    ({"resources_per_node": {"gpus": 0.5}}, "resources_per_node: nvidia.com/gpu: 0.5 is not a whole number"),
    (
        {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "x"}},
        "annotations: annotation gpu-fraction-num-devices: 'x' is not a number of devices",
    ),
]
"""Jobs with an invalid request for devices, and the start of the error."""


@pytest.mark.parametrize("framework", COUNTING)
@pytest.mark.parametrize(("resources", "procs"), UNUSUAL)
def test_amounts_of_memory_and_cores_are_not_devices(framework: Any, resources: dict[str, Any], procs: int) -> None:
    plan = Plan(framework, num_nodes=2, resources_per_node={"cpu": 8, **resources}).plan
    assert (plan.world.procs_per_node, plan.world.size) == (procs, 2 * procs)


@pytest.mark.parametrize("framework", COUNTING)
@pytest.mark.parametrize("job", UNKNOWN)
@pytest.mark.parametrize("procs", ["auto", "gpu"])
def test_an_unknown_number_of_processes_is_an_error(framework: Any, job: dict[str, Any], procs: str) -> None:
    with pytest.raises(BadInputError, match=rf"^procs_per_node: {procs} cannot count the processes: .*; .*give "):
        Plan(framework, procs_per_node=procs, **job)
    assert Plan(framework, procs_per_node=2, **job).plan.world.procs_per_node == 2


@pytest.mark.parametrize("framework", COUNTING)
@pytest.mark.parametrize(("job", "start"), INVALID)
@pytest.mark.parametrize("procs", ["auto", "gpu"])
def test_an_invalid_request_for_devices_is_the_error(
    framework: Any, job: dict[str, Any], start: str, procs: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        Plan(framework, procs_per_node=procs, **job)
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize("framework", ["jax", "plain"])
@pytest.mark.parametrize("job", UNKNOWN)
def test_one_process_a_node_needs_no_count(framework: str, job: dict[str, Any]) -> None:
    assert Plan(framework, **job).plan.world.procs_per_node == 1


@pytest.mark.parametrize("framework", COUNTING)
@pytest.mark.parametrize(
    ("resources", "note"),
    [
        ({"gpus": 4}, None),
        ({"cpu": 4}, None),
        ({"nvidia.com/mig-1g.5gb": 1}, None),
        (
            {"google.com/tpu": 4},
            "procs_per_node: 1 (google.com/tpu: one process for all); PyTorch/XLA without SPMD runs one process per"
            " chip: give procs_per_node as the number of chips",
        ),
        ({"aliyun.com/gpu-mem": 8}, "procs_per_node: 1 (aliyun.com/gpu-mem: a share of one device)"),
        (
            {"tencent.com/vcuda-core": 200},
            "procs_per_node: 2 (200 % of tencent.com/vcuda-core, 100 for each device)",
        ),
        ({"gpus": 2, "habana.ai/gaudi": 4}, "procs_per_node: 2 x nvidia.com/gpu; not counted: habana.ai/gaudi"),
        (
            {"cpu": 4, "furiosa.ai/rngd": 4},
            "procs_per_node: not counted: furiosa.ai/rngd; if these are accelerators, give procs_per_node as a number",
        ),
    ],
)
def test_a_rule_for_the_number_of_processes_is_explained(
    framework: Any, resources: dict[str, Any], note: str | None
) -> None:
    notes = Plan(framework, resources_per_node=resources).plan.notes
    assert notes == (() if note is None else (note,))
    assert Plan(framework, resources_per_node=resources, procs_per_node=2).plan.notes == ()


def test_ranks_must_select_their_mig_device() -> None:
    [note] = Plan("torch", resources_per_node=MIG).plan.notes
    assert note.startswith("procs_per_node: 3 x nvidia.com/mig-1g.5gb; a CUDA process uses one MIG device")
