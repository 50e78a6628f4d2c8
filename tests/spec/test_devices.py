"""The accelerators of a pod: what each resource name means for the number of processes."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any

import pytest

from stepset.spec import parse_job
from stepset.spec.devices import Devices, devices_of, node_devices, unit_of
from stepset.spec.known_devices import AUTO, KNOWN


def devices(given: dict[str, Any], **job: Any) -> Devices:
    return node_devices(parse_job({"script": "a.py", "resources_per_node": given, **job}))


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "example.com/GPU",
        "example.com/compute-gpu",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-1g.10gb.me",
        "habana.ai/gaudi",
        "huawei.com/Ascend910",
        "huawei.com/Ascend310P-4c",
        "cambricon.com/mlu",
        "cambricon.com/mlu370",
        "cambricon.com/vmlu",
        "aws.amazon.com/neuroncore",
        "volcano.sh/vgpu-number",
        "koordinator.sh/gpu.shared",
        "hygon.com/dcunum",
        "metax-tech.com/sgpu",
        "deviceclass.resource.kubernetes.io/gpu.example.com",
    ],
)
def test_each_device_gets_a_process(name: str) -> None:
    found = devices({"limits": {name: 4}})
    assert (found.name, found.count, found.processes, found.problem) == (name, 4, 4, "")
    assert found.rule == f"4 x {name}"


@pytest.mark.parametrize(
    "name",
    [
        "vendor.example/nic",
        "rdma/hca",
        "rdma/gpu_nic",
        "vpc.amazonaws.com/efa",
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-2Mi",
        "smarter-devices/fuse",
        "smarter-devices/nvhost-ctrl-gpu",
        "intel.com/qat",
        "gpu.intel.com/i915_monitoring",
        "gpu.intel.com/xe_monitoring",
        "gpu.intel.com/tiles",
        "gpu.intel.com/millicores",
        "nvidia.com/priority",
        "qat.intel.com/generic",
        "devices.kubevirt.io/kvm",
        "github.com/fuse",
        "openshift.io/mlxnics",
        "intel.com/intel_sriov_netdevice",
        "nvidia.com/hostdev",
        "mellanox.com/ib1",
    ],
)
def test_other_resources_do_not_count(name: str) -> None:
    assert devices({"limits": {name: "4Mi" if name in ("memory", "ephemeral-storage") else 4}}) == Devices()


@pytest.mark.parametrize(
    "name", ["furiosa.ai/rngd", "qualcomm.com/qaic", "rebellions.ai/ATOM", "deviceclass.resource.kubernetes.io/npu"]
)
def test_a_resource_that_may_be_an_accelerator_is_unknown(name: str) -> None:
    given = {"cpu": 16, "rdma/hca": 1, "nvidia.com/priority": 1, name: 4}
    assert devices(given) == Devices(unknown=(name,))
    assert devices({**given, "gpus": 2}).unknown == ()


@pytest.mark.parametrize("name", ["example.com/gpu-h100-80gb-hbm3", "example.com/gpu-hbm2e"])
def test_a_product_name_with_a_version_of_hbm_is_a_device(name: str) -> None:
    assert devices({"limits": {name: 4}}).processes == 4


AMOUNTS = [
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-cores",
    "volcano.sh/gpu-mem.128Mi",
    "volcano.sh/gpu-core.percentage",
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-core.percentage",
    "tencent.com/vcuda-memory",
    "koordinator.sh/gpu-memory",
    "huawei.com/Ascend910B-memory",
    "cambricon.com/mlu.smlu.vmemory",
    "cambricon.com/mlu.smlu.vcore",
    "hygon.com/dcumem",
    "metax-tech.com/vmemory",
    "example.com/gpu-memory",
    "example.com/gpu_mem",
    "example.com/gpumem",
    "example.com/vgpu-cores",
    "example.com/gpumilli",
    "example.com/gpu-milli",
    "alibabacloud.com/gpu-hbm",
    "example.com/gpu-vram",
    "example.com/gpu-compute",
    "gpu.example.com/compute",
]


@pytest.mark.parametrize("name", AMOUNTS)
def test_memory_and_cores_are_a_share_of_one_device(name: str) -> None:
    found = devices({"limits": {name: 3000}, "requests": {"cpu": 8}})
    assert (found.count, found.processes, found.rule) == (1, 1, f"{name}: a share of one device")


@pytest.mark.parametrize("name", AMOUNTS)
def test_memory_and_cores_do_not_count_beside_devices(name: str) -> None:
    assert devices({"limits": {name: 3000, "nvidia.com/gpu": 2}}) == devices({"gpus": 2})


@pytest.mark.parametrize(
    ("given", "processes"),
    [
        ({"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20}, 1),
        ({"tencent.com/vcuda-core": 100}, 1),
        ({"tencent.com/vcuda-core": 200}, 2),
        ({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50}, 1),
        ({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 400}, 4),
        ({"koordinator.sh/gpu": 200}, 2),
        ({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 100}, 2),
    ],
)
def test_a_hundred_percent_are_a_device(given: dict[str, int], processes: int) -> None:
    found = devices({"limits": given})
    assert (found.count, found.processes, found.problem) == (processes, processes, "")


def test_more_than_a_device_must_be_whole_devices() -> None:
    found = devices({"limits": {"tencent.com/vcuda-core": 150}})
    assert found.problem == (
        "tencent.com/vcuda-core: 150 is more than 100 and not a multiple of it; give 100 for each device, or less for a"
        " share of one device"
    )


@pytest.mark.parametrize("name", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared", "cambricon.com/mlu.share"])
def test_several_shared_gpus_may_be_one_device(name: str) -> None:
    assert devices({"limits": {name: 3}}).processes == 1


@pytest.mark.parametrize("name", ["google.com/tpu", "cloud-tpus.google.com/v3"])
def test_one_process_uses_all_tpu_chips_of_a_host(name: str) -> None:
    found = devices({"limits": {name: 4}})
    assert (found.count, found.processes, found.rule) == (4, 1, f"{name}: one process for all")


@pytest.mark.parametrize("name", ["aws.amazon.com/neuron", "aws.amazon.com/neurondevice"])
def test_the_cores_of_a_neuron_chip_are_unknown(name: str) -> None:
    found = devices({"limits": {name: 16}})
    assert found.processes == 0
    assert found.problem.startswith(f"{name}: a chip of 2 to 8 logical NeuronCores")
    assert found.problem.endswith("; give procs_per_node as a number")


@pytest.mark.parametrize("other", ["nvidia.com/mig-3g.20gb", "nvidia.com/gpu"])
def test_mig_devices_of_two_sizes_are_a_problem(other: str) -> None:
    found = devices({"limits": {"nvidia.com/mig-1g.5gb": 2, other: 1}})
    assert found.processes == 0
    assert other in found.problem
    assert found.problem.endswith("request only one of these resources, or give procs_per_node as a number")


@pytest.mark.parametrize("amount", ["0.5", "500m", "1.5"])
@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "google.com/tpu"])
def test_a_device_cannot_be_divided(name: str, amount: str) -> None:
    found = devices({name: amount})
    assert re.match(rf"{re.escape(name)}: \S+ is not a whole number; devices cannot be divided", found.problem)
    assert found.processes == 0


def test_requests_are_counted_before_limits() -> None:
    assert devices({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}).count == 1
    assert devices({"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 2}}).count == 2
    assert devices({"requests": {"nvidia.com/gpu": 2}}).count == 2


def test_zero_gpus_are_not_an_accelerator() -> None:
    assert devices({"gpus": 0, "cpu": 6}) == Devices()
    assert devices({"requests": {"gpus": 0}, "limits": {"gpus": 2}}).count == 2


def test_the_result_does_not_depend_on_the_order_of_names() -> None:
    names = ["nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "example.com/gpu-memory"]
    answers = [devices({"limits": dict.fromkeys(order, 2)}) for order in permutations(names)]
    assert {(found.name, found.count) for found in answers} == {("amd.com/gpu", 2)}
    assert {found.ignored for found in answers} == {("nvidia.com/gpu", "habana.ai/gaudi")}


@pytest.mark.parametrize("place", [lambda each: each, lambda each: {"pod_template": {"metadata": each}}])
@pytest.mark.parametrize(
    ("annotations", "processes"),
    [
        ({"gpu-fraction": "0.5"}, 1),
        ({"gpu-memory": "4096"}, 1),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, 2),
    ],
)
def test_annotations_request_shares_of_gpus(place: Any, annotations: dict[str, str], processes: int) -> None:
    job = place({"annotations": annotations})
    assert devices({"cpu": 8}, **job).processes == processes
    assert devices({"gpus": 4}, **job).processes == 4, "a resource takes precedence"


def test_a_wrong_number_of_shared_gpus_is_a_problem() -> None:
    found = devices({}, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "two"})
    assert found.problem.startswith("annotation gpu-fraction-num-devices: 'two' is not a number of devices")


def test_the_devices_of_a_claim_are_unknown() -> None:
    template = {
        "spec": {
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four-gpus"}],
            "containers": [{"name": "node", "resources": {"claims": [{"name": "gpus"}]}}],
        }
    }
    found = devices({"cpu": 8}, pod_template=template)
    assert found.problem.startswith("the number of devices of the resource claim 'gpus' is not in the job")
    assert devices({"gpus": 2}, pod_template=template).processes == 2, "the claim may be a network interface"


def test_every_known_name_has_the_unit_of_its_row() -> None:
    """Rows do not hide each other: the first row that matches a name is the one that lists it."""
    for row in KNOWN:
        for pattern in row.names:
            name = pattern.replace("*", "x").replace("?", "c")
            assert unit_of(name) == row.unit, (name, row)
        assert row.unit in AUTO
        assert row.meaning and row.source


def test_the_limits_alone_are_the_requests() -> None:
    job = parse_job({"script": "a.py", "resources_per_node": {"limits": {"gpus": 2}}})
    assert devices_of(job.resources_per_node).processes == 2
