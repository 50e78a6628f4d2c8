"""The resources that each pod requests, and how many processes fit into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_serializer, model_validator

from stepset.spec.base import JobModel, nearest, refused
from stepset.spec.quantity import Quantity, ceil_quantity, read_quantity

GPU_RESOURCE = "nvidia.com/gpu"
_PLAIN_NAMES = ("cpu", "memory", "ephemeral-storage")
_KNOWN_NAMES = (*_PLAIN_NAMES, "gpus", "shm", "vendor.example/name")

# Other resources that count accelerators. Names that contain "gpu" are recognised by that, as in Kubeflow Trainer
# (pkg/runtime/runtime.go:289-315, v2.3.0), which does not recognise these.
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
        if not isinstance(data, Mapping):
            return data
        if "requests" in data or "limits" in data:
            apart = ((kind, data[kind]) for kind in ("requests", "limits") if isinstance(data.get(kind), Mapping))
            return {**data, **{kind: _amounts(amounts, (kind,), any_of_kubernetes=True) for kind, amounts in apart}}
        both = _amounts({key: value for key, value in data.items() if key != "shm"}, ())
        return {"requests": both, "limits": both, **({"shm": data["shm"]} if "shm" in data else {})}

    @model_serializer
    def _shortest_form(self) -> dict[str, Any]:
        extra = {"shm": self.shm} if self.shm is not None else {}
        short = {("gpus" if k == GPU_RESOURCE else k): v for k, v in self.requests.items()}
        plain = all(k in (*_PLAIN_NAMES, "gpus") or "/" in k for k in short)
        if self.requests == self.limits and plain:
            return short | extra
        return {"requests": dict(self.requests), "limits": dict(self.limits), **extra}


def _amounts(given: Mapping[Any, Any], place: tuple[str, ...], *, any_of_kubernetes: bool = False) -> dict[str, str]:
    """Returns resource name -> quantity, with `gpus` written out; one error names all problems, located at `place`.

    `any_of_kubernetes` also accepts Kubernetes' names without a vendor's prefix (huge pages).
    """
    amounts: dict[str, str] = {}
    wrong: list[tuple[tuple[str, ...], str]] = []
    for key, value in given.items():
        name = GPU_RESOURCE if key == "gpus" else str(key)
        if name not in _PLAIN_NAMES and "/" not in name and not (any_of_kubernetes and name.startswith("hugepages-")):
            wrong.append((place, f"unknown key {name!r}; {nearest(name, _KNOWN_NAMES)}"))
        elif name in amounts:
            wrong.append(((*place, str(key)), f"means {name}, which is given too; give one of them"))
        else:
            try:
                amounts[name] = read_quantity(value)
            except ValueError as error:
                wrong.append(((*place, str(key)), str(error)))
    if wrong:
        raise refused(*wrong)
    return amounts


def merge_resources(base: Resources, over: Mapping[str, Any]) -> Resources:
    """Returns `base` with a container's `{requests, limits}` merged over it; ValidationError if they are invalid."""
    given = {kind: over[kind] for kind in ("requests", "limits") if over.get(kind) is not None}
    more = Resources.model_validate({"requests": {}, **given})
    return Resources(requests={**base.requests, **more.requests}, limits={**base.limits, **more.limits}, shm=base.shm)


def accelerator(resources: Resources) -> tuple[str, int]:
    """The accelerator a pod requests and how many: (resource name, count), or ("", 0).

    GPUs come before other kinds, requests before limits. Of several the first by name counts, so that the answer does
    not depend on the order of a mapping (Kubeflow Trainer's does).
    """
    for counts in (_is_gpu, _is_other_accelerator):
        for amounts in (resources.requests, resources.limits):
            for name in sorted(amounts):
                if counts(name) and (n := ceil_quantity(amounts[name])):
                    return name, n
    return "", 0


def _is_gpu(name: str) -> bool:
    return "gpu" in name.lower()


def _is_other_accelerator(name: str) -> bool:
    return name.lower().startswith(_OTHER_ACCELERATORS)


def cpu_count(resources: Resources) -> int:
    """Whole CPUs a pod requests, rounded up; at least 1. Requests count before limits.

    Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/torch/torch.go:110-226.
    """
    text = resources.requests.get("cpu", "0")
    cpus = ceil_quantity(text) or ceil_quantity(resources.limits.get("cpu", "0"))
    return max(1, cpus)
