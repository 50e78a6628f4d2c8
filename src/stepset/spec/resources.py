"""The resources that each pod requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_serializer, model_validator

from stepset.spec.base import JobModel, nearest, validation_error
from stepset.spec.quantity import Quantity, ceil_quantity, check_bytes, parse_quantity, read_quantity

GPU_RESOURCE = "nvidia.com/gpu"
_PLAIN_NAMES = ("cpu", "memory", "ephemeral-storage")
_BYTES = ("memory", "ephemeral-storage")
_SHORT_NAMES = (*_PLAIN_NAMES, "gpus")
_KNOWN_NAMES = (*_PLAIN_NAMES, "gpus", "shm", "vendor.example/name")


class Resources(JobModel):
    """Requests and limits of one pod.

    In the job file the short form `{cpu: 4, memory: 16Gi, gpus: 2, shm: 8Gi}` makes requests equal to limits;
    `{requests: {...}, limits: {...}}` sets them separately and accepts any resource name.
    """

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """Resource name -> quantity that the scheduler reserves."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """Resource name -> quantity the pod may not exceed."""
    shm: Annotated[Quantity, AfterValidator(check_bytes)] | None = None
    """Size of /dev/shm (a memory volume); default: as much as the pod's memory allows."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if "requests" in data or "limits" in data:
            apart = ((kind, data[kind]) for kind in ("requests", "limits") if isinstance(data.get(kind), Mapping))
            return {**data, **{kind: _amounts(amounts, (kind,), huge_pages=True) for kind, amounts in apart}}
        both = _amounts({key: value for key, value in data.items() if key != "shm"}, ())
        return {"requests": both, "limits": both, **({"shm": data["shm"]} if "shm" in data else {})}

    @model_validator(mode="after")
    def _shm_fits_into_memory(self) -> Resources:
        memory = self.limits.get("memory")
        if self.shm is not None and memory is not None and parse_quantity(self.shm) > parse_quantity(memory):
            raise validation_error(
                (("shm",), f"{self.shm} is more than the memory {memory}, which includes /dev/shm; lower it")
            )
        return self

    @model_serializer
    def _shortest_form(self) -> dict[str, Any]:
        extra = {"shm": self.shm} if self.shm is not None else {}
        short = {("gpus" if k == GPU_RESOURCE else k): v for k, v in self.requests.items()}
        if self.requests == self.limits and all(k in _SHORT_NAMES or "/" in k for k in short):
            return short | extra
        return {"requests": dict(self.requests), "limits": dict(self.limits), **extra}


def _amounts(given: Mapping[Any, Any], place: tuple[str, ...], *, huge_pages: bool = False) -> dict[str, str]:
    """Returns resource name -> quantity, with `gpus` as its full name; raises one ValidationError for all problems.

    `huge_pages`: whether names such as hugepages-2Mi are accepted.
    """
    amounts: dict[str, str] = {}
    wrong: list[tuple[tuple[str, ...], str]] = []
    for key, value in given.items():
        name = GPU_RESOURCE if key == "gpus" else str(key)
        if name not in _PLAIN_NAMES and "/" not in name and not (huge_pages and name.startswith("hugepages-")):
            wrong.append((place, f"unknown key {name!r}; {nearest(name, _KNOWN_NAMES)}"))
        elif name in amounts:
            wrong.append(((*place, str(key)), f"sets {name}, which another key sets, too; give one of them"))
        else:
            try:
                amounts[name] = check_bytes(read_quantity(value)) if name in _BYTES else read_quantity(value)
            except ValueError as error:
                wrong.append(((*place, str(key)), str(error)))
    if wrong:
        raise validation_error(*wrong)
    return amounts


def merge_resources(base: Resources, over: Mapping[str, Any]) -> Resources:
    """Returns `base` with a container's `{requests, limits}` merged over it; ValidationError if they are invalid."""
    given = {kind: over[kind] for kind in ("requests", "limits") if over.get(kind) is not None}
    more = Resources.model_validate({"requests": {}, **given})
    return Resources(requests={**base.requests, **more.requests}, limits={**base.limits, **more.limits}, shm=base.shm)


def cpu_count(resources: Resources) -> int:
    """Returns the CPUs that a pod requests, or its limit, rounded up; at least 1.

    Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/torch/torch.go:110-226.
    """
    text = resources.requests.get("cpu", "0")
    cpus = ceil_quantity(text) or ceil_quantity(resources.limits.get("cpu", "0"))
    return max(1, cpus)
