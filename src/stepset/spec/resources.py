"""What each pod asks for, and how many processes that is good for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from stepset.spec.base import JobModel, nearest
from stepset.spec.quantity import Quantity, ceil_quantity

GPU_RESOURCE = "nvidia.com/gpu"
_PLAIN_NAMES = ("cpu", "memory", "ephemeral-storage")

# What else is one accelerator a piece. Names that contain "gpu" are found by that alone, as Kubeflow Trainer does
# (pkg/runtime/runtime.go:289-315, v2.3.0), which misses all of these.
_OTHER_ACCELERATORS = (
    "nvidia.com/mig-",
    "google.com/tpu",
    "habana.ai/gaudi",
    "huawei.com/ascend",
    "aws.amazon.com/neuron",
)


class Resources(JobModel):
    """Requests and limits of one pod.

    In the job file the short form `{cpu: 4, memory: 16Gi, gpus: 2, shm: 8Gi}` makes requests equal to limits;
    `{requests: {...}, limits: {...}}` sets them apart and takes any resource name.
    """

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """Resource name -> quantity the scheduler sets aside."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """Resource name -> quantity the pod may not exceed."""
    shm: Quantity | None = None
    """Size of /dev/shm (a memory volume); default: as much as the pod's memory allows."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "requests" in data or "limits" in data:
            return data
        both: dict[str, Any] = {}
        for key, value in data.items():
            if key == "shm":
                continue
            if key == "gpus":
                key = GPU_RESOURCE
            elif key not in _PLAIN_NAMES and "/" not in str(key):
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key '{key}'; {hint}",
                    {"key": str(key), "hint": nearest(str(key), [*_PLAIN_NAMES, "gpus", "shm", "vendor.example/name"])},
                )
            both[key] = value
        return {"requests": both, "limits": both, **({"shm": data["shm"]} if "shm" in data else {})}

    @model_serializer
    def _shortest_form(self) -> dict[str, Any]:
        extra = {"shm": self.shm} if self.shm is not None else {}
        short = {("gpus" if k == GPU_RESOURCE else k): v for k, v in self.requests.items()}
        plain = all(k in (*_PLAIN_NAMES, "gpus") or "/" in k for k in short)
        if self.requests == self.limits and plain:
            return short | extra
        return {"requests": dict(self.requests), "limits": dict(self.limits), **extra}


def merge_resources(base: Resources, over: Mapping[str, Any]) -> Resources:
    """`base` with a container's `{requests, limits}` merged over it, name by name."""
    return Resources(
        requests={**base.requests, **over.get("requests", {})},
        limits={**base.limits, **over.get("limits", {})},
        shm=base.shm,
    )


def accelerator(resources: Resources) -> tuple[str, int]:
    """The accelerator a pod asks for and how many: (resource name, count), or ("", 0).

    Requests are looked at before limits. Of several kinds the first by name counts, so that the answer does not
    depend on the order of a mapping (the reference's does).
    """
    for amounts in (resources.requests, resources.limits):
        for name in sorted(amounts):
            lower = name.lower()
            if ("gpu" in lower or lower.startswith(_OTHER_ACCELERATORS)) and (n := ceil_quantity(amounts[name])):
                return name, n
    return "", 0


def cpu_count(resources: Resources) -> int:
    """Whole CPUs a pod asks for, rounded up; at least 1. Requests count before limits.

    Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/torch/torch.go:110-226.
    """
    text = resources.requests.get("cpu", "0")
    cpus = ceil_quantity(text) or ceil_quantity(resources.limits.get("cpu", "0"))
    return max(1, cpus)
