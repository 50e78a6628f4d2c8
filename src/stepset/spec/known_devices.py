"""The list of device resources.

If a job sets `procs_per_node: auto`, stepset determines the number of processes from this list. A table in
docs/job-file.md is generated from this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["device", "mig", "whole", "percent", "share", "uncounted", "none"]
"""The meaning of one unit of a resource.

- `device`: one device.
- `mig`: one MIG device.
- `whole`: one device, such as a TPU. One process uses all devices of the pod.
- `percent`: a hundredth of a device.
- `share`: a part of the memory or of the cores of a device.
- `uncounted`: one device. The number of processes for the device is unknown.
- `none`: not a device.
"""

AUTO: Final[dict[Unit, str]] = {
    "device": "the requested number",
    "mig": "the requested number; an error if the job requests two profiles, or a profile and whole GPUs",
    "whole": "1",
    "percent": "the requested number divided by 100; 1 if the requested number is below 100. A requested number above"
    " 100 must be a multiple of 100",
    "share": "1, if no other requested resource determines the number",
    "uncounted": "an error: set `procs_per_node` to a number",
    "none": "the same number as without this resource",
}
"""The rule for `procs_per_node: auto` for each unit. docs/job-file.md contains these descriptions."""


class AnyGpu:
    """The units of resources that are missing in `KNOWN`, but whose names contain "gpu"."""

    DEVICE: Final[Unit] = "device"
    SHARED: Final[Unit] = "whole"
    AMOUNT: Final[Unit] = "share"


@dataclass(frozen=True, slots=True)
class DeviceResource:
    """Resources whose units have the same meaning.

    Args:
        names: patterns that match the names of the resources. `*` matches any characters. Case is ignored.
        unit: the kind of unit in which the resources are counted (see `Unit`).
        meaning: a description of one unit, for the documentation. If the unit is `uncounted`, the description is also
            a part of the error message.
        source: the source of the information, such as the documentation of a device plugin.
        hint: when another number of processes than that of `procs_per_node: auto` is right, or "".
    """

    names: tuple[str, ...]
    unit: Unit
    meaning: str
    source: str
    hint: str = ""


_DEVICE_PLUGIN = "NVIDIA/k8s-device-plugin v0.17, README"
_HAMI = "Project-HAMi/HAMi v2.10, charts/hami/values.yaml"
_INTEL = "intel/intel-device-plugins-for-kubernetes 0.32, cmd/gpu_plugin"
_NEURON = "AWS Neuron 2.31, k8s-neuron-device-plugin and Logical NeuronCore configuration"
_ASCEND = "Project-HAMi/ascend-device-plugin, README"
_KOORDINATOR = "Koordinator 1.7, device scheduling"
_ALIYUN = "kubeflow/arena and ACK, GPU sharing"

# If several entries match a resource, the first of them is used.
KNOWN: Final[tuple[DeviceResource, ...]] = (
    DeviceResource(
        ("nvidia.com/gpu",),
        "device",
        "a GPU. With HAMi, a share of a GPU. If a pod requests several shares, each share is on a different GPU",
        _DEVICE_PLUGIN,
    ),
    DeviceResource(
        ("nvidia.com/gpu.shared", "nvidia.com/mig-*.shared"),
        "whole",
        "access to a time-sliced or MPS-shared GPU; several units may give access to the same GPU, and NCCL does not"
        " allow two ranks on the same GPU",
        _DEVICE_PLUGIN + ", Shared Access to GPUs",
    ),
    DeviceResource(
        ("nvidia.com/mig-*",),
        "mig",
        "a MIG device. A CUDA process uses one MIG device, and the training code must select this device. For XGBoost,"
        " the agent selects the device",
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
    DeviceResource(
        ("gpu.intel.com/i915", "gpu.intel.com/xe"),
        "device",
        "a GPU. torch may list each tile of the GPU as a device",
        _INTEL,
    ),
    DeviceResource(
        ("gpu.intel.com/*",),
        "none",
        "access for monitoring, or a part of a GPU (tiles, millicores or memory). To request the GPU itself, a"
        " pod uses another resource name",
        _INTEL,
    ),
    DeviceResource(
        ("google.com/tpu", "cloud-tpus.google.com/*"),
        "whole",
        "a TPU chip; one process uses all chips of its host, in JAX and PyTorch/XLA SPMD. Without SPMD, PyTorch/XLA"
        " runs one process per chip, so `procs_per_node` must be the number of chips",
        "JAX, Introduction to multi-controller JAX; PyTorch/XLA 2.8, SPMD and torch_xla.launch",
        "PyTorch/XLA without SPMD runs one process per chip: give procs_per_node as the number of chips",
    ),
    DeviceResource(("aws.amazon.com/neuroncore",), "device", "a NeuronCore", _NEURON),
    DeviceResource(
        ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice"),
        "uncounted",
        "a chip of 2 to 8 logical NeuronCores, depending on the instance (Trn2: 8 physical cores, 4 logical ones by"
        " default); each process uses one logical core",
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
    DeviceResource(
        (
            "qat.intel.com/*",
            "sgx.intel.com/*",
            "dsa.intel.com/*",
            "iaa.intel.com/*",
            "dlb.intel.com/*",
            "devices.kubevirt.io/*",
        ),
        "none",
        "encryption, compression, transfer of data, virtual machines",
        "intel/intel-device-plugins-for-kubernetes 0.32, README; KubeVirt, pkg/virt-handler/device-manager",
    ),
)
