"""The resource names that stepset knows, and what `procs_per_node: auto` becomes for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["device", "mig", "whole", "percent", "share", "uncounted", "none"]
"""What one unit of a resource is: a device; a MIG device; a device of a kind, such as a TPU, where one process uses all
devices of the pod; a hundredth of a device; a part of a device's memory or cores; a device whose processes cannot be
counted; something other than a device."""

AUTO: Final[dict[Unit, str]] = {
    "device": "the number",
    "mig": "the number; an error if the job requests two profiles, or a profile and whole GPUs",
    "whole": "1",
    "percent": "a hundredth of the number; 1 for less than 100; more than 100 must be a multiple of 100",
    "share": "1, if nothing else requests a device",
    "uncounted": "an error: give a number",
    "none": "as if it were not requested",
}
"""What `procs_per_node: auto` becomes for each unit."""


class AnyGpu:
    """The units of names that are not in `KNOWN` and contain "gpu"."""

    DEVICE: Final[Unit] = "device"
    SHARED: Final[Unit] = "whole"
    AMOUNT: Final[Unit] = "share"


@dataclass(frozen=True, slots=True)
class DeviceResource:
    """Resources whose units have the same meaning.

    Args:
        names: their names; `*` stands for any text, upper and lower case are equal.
        unit: what one unit is.
        meaning: what one unit is, for the documentation and, if the unit is `uncounted`, for the error.
        source: where the resource is documented.
    """

    names: tuple[str, ...]
    unit: Unit
    meaning: str
    source: str


_DEVICE_PLUGIN = "NVIDIA/k8s-device-plugin v0.17, README"
_HAMI = "Project-HAMi/HAMi v2.10, charts/hami/values.yaml"
_INTEL = "intel/intel-device-plugins-for-kubernetes 0.32, cmd/gpu_plugin"
_NEURON = "AWS Neuron 2.31, k8s-neuron-device-plugin"
_ASCEND = "Project-HAMi/ascend-device-plugin, README"
_KOORDINATOR = "Koordinator 1.7, device scheduling"
_ALIYUN = "kubeflow/arena and ACK, GPU sharing"

# The first row that matches a name applies.
KNOWN: Final[tuple[DeviceResource, ...]] = (
    DeviceResource(
        ("nvidia.com/gpu",),
        "device",
        "a GPU; with HAMi, a share of a GPU, where the shares of one pod are on different GPUs",
        _DEVICE_PLUGIN,
    ),
    DeviceResource(
        ("nvidia.com/gpu.shared", "nvidia.com/mig-*.shared"),
        "whole",
        "access to a time-sliced or MPS-shared GPU; several may be the same GPU, which NCCL refuses for two ranks",
        _DEVICE_PLUGIN + ", Shared Access to GPUs",
    ),
    DeviceResource(
        ("nvidia.com/mig-*",),
        "mig",
        "a MIG device; a CUDA process uses one, and the training code must select it (XGBoost: the agent does)",
        "NVIDIA MIG User Guide, Device Enumeration",
    ),
    DeviceResource(
        ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
        "share",
        "memory or cores of each GPU",
        _HAMI,
    ),
    DeviceResource(("nvidia.com/priority",), "none", "the priority of a task", _HAMI),
    DeviceResource(
        ("volcano.sh/vgpu-number", "volcano.sh/gpu-number"),
        "device",
        "a virtual GPU",
        "volcano-sh/devices and volcano-sh/volcano-vgpu-device-plugin, README",
    ),
    DeviceResource(
        ("volcano.sh/vgpu-*", "volcano.sh/gpu-*"),
        "share",
        "memory or cores of each virtual GPU",
        "volcano-sh/volcano-vgpu-device-plugin, README; Huawei CCE, GPU virtualization",
    ),
    DeviceResource(
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.*"), "share", "memory (GiB) or cores of one GPU", _ALIYUN
    ),
    DeviceResource(("tencent.com/vcuda-core",), "percent", "a hundredth of a GPU", "tkestack/gpu-manager, README"),
    DeviceResource(("tencent.com/vcuda-memory",), "share", "256 MiB of a GPU", "tkestack/gpu-manager, README"),
    DeviceResource(("koordinator.sh/gpu.shared",), "device", "a GPU of which the pod gets a share", _KOORDINATOR),
    DeviceResource(
        ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"),
        "percent",
        "a hundredth of a GPU",
        _KOORDINATOR,
    ),
    DeviceResource(("koordinator.sh/gpu-memory",), "share", "memory of a GPU", _KOORDINATOR),
    DeviceResource(
        ("amd.com/gpu", "amd.com/?px_nps*"),
        "device",
        "a GPU, or a partition of one",
        "ROCm/k8s-device-plugin, resource_naming_strategy",
    ),
    DeviceResource(("gpu.intel.com/i915", "gpu.intel.com/xe"), "device", "a GPU; torch may see its tiles", _INTEL),
    DeviceResource(
        ("gpu.intel.com/*",), "none", "monitoring, tiles, millicores or memory of a GPU, not another GPU", _INTEL
    ),
    DeviceResource(
        ("google.com/tpu", "cloud-tpus.google.com/*"),
        "whole",
        "a TPU chip; one process uses all chips of its host, in JAX and PyTorch/XLA SPMD",
        "JAX, Introduction to multi-controller JAX; PyTorch/XLA 2.8, SPMD",
    ),
    DeviceResource(("aws.amazon.com/neuroncore",), "device", "a NeuronCore", _NEURON),
    DeviceResource(
        ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice"),
        "uncounted",
        "a chip of 2 to 8 NeuronCores, depending on the instance; each process uses one core",
        _NEURON,
    ),
    DeviceResource(("habana.ai/gaudi",), "device", "a Gaudi card", "Intel Gaudi, Kubernetes device plugin"),
    DeviceResource(("huawei.com/Ascend*-memory", "huawei.com/npu-core"), "share", "memory or cores of an NPU", _ASCEND),
    DeviceResource(("huawei.com/Ascend*", "huawei.com/npu"), "device", "an NPU, or a virtual one", _ASCEND),
    DeviceResource(("cambricon.com/*.smlu.*", "cambricon.com/mlu*-mem*"), "share", "memory or cores of an MLU", _HAMI),
    DeviceResource(
        ("cambricon.com/mlu*.share", "cambricon.com/mlu*-share"),
        "whole",
        "access to a shared MLU",
        "Cambricon/cambricon-k8s-device-plugin, mode env-share",
    ),
    DeviceResource(("cambricon.com/mlu*", "cambricon.com/vmlu"), "device", "an MLU, or a virtual one", _HAMI),
    DeviceResource(
        (
            "hygon.com/?cumem",
            "hygon.com/?cucores",
            "enflame.com/*gcu-*",
            "kunlunxin.com/*-memory",
            "metax-tech.com/v*",
            "mthreads.com/*-memory",
            "mthreads.com/*-core",
            "iluvatar.ai/*mem*",
            "iluvatar.ai/*core*",
        ),
        "share",
        "memory or cores of a device",
        _HAMI,
    ),
    DeviceResource(
        (
            "hygon.com/?cunum",
            "enflame.com/*gcu",
            "kunlunxin.com/*xpu",
            "metax-tech.com/*gpu",
            "mthreads.com/*gpu",
            "iluvatar.ai/*gpu",
            "birentech.com/gpu",
            "vastaitech.com/va",
        ),
        "device",
        "a device, or a virtual one",
        _HAMI,
    ),
    DeviceResource(
        (
            "rdma/*",
            "smarter-devices/*",
            "vpc.amazonaws.com/*",
            "networking.gke.io*/*",
            "hugepages-*",
            "ephemeral-storage",
        ),
        "none",
        "network interfaces, device files, memory, disk",
        "Kubernetes, Device Plugins; smarter-project/smarter-device-manager, README",
    ),
)
