"""The model of the resources that a pod requests."""

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
    """The requests and limits of one pod.

    In the short form `{cpu: 4, memory: 16Gi, gpus: 2, shm: 8Gi}`, the requests are equal to the limits. The long form
    `{requests: {...}, limits: {...}}` sets requests and limits separately and accepts further resource names.
    """

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """The quantities that the scheduler reserves. The keys are the names of the resources."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """The quantities that the pod must not exceed. The keys are the names of the resources. A local run does not
    enforce the limits."""
    shm: Annotated[Quantity, AfterValidator(check_bytes)] | None = None
    """The size of /dev/shm, which is a volume in memory. By default, the size is limited only by the memory of
    the pod."""

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
    """Returns a mapping from resource names to quantities. The short name `gpus` is replaced with the full name.

    Raises a ValidationError that contains all problems of the quantities.

    Args:
        place: the location of the mapping in the job file, for error messages.
        huge_pages: whether names such as hugepages-2Mi are accepted.
    """
    amounts: dict[str, str] = {}
    wrong: list[tuple[tuple[str, ...], str]] = []
    for key, value in given.items():
        name = GPU_RESOURCE if key == "gpus" else str(key)
        if name.startswith("hugepages-") and not huge_pages:
            wrong.append((place, f"{name} needs the form {{requests: {{...}}, limits: {{...}}}}"))
        elif name not in _PLAIN_NAMES and "/" not in name and not name.startswith("hugepages-"):
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
    """Returns the combined resources of `base` and a container.

    If `base` and the container contain the same resource, the quantity of the container is used. As in a strategic
    merge patch, `null` removes a quantity, or all requests or limits.

    Raises ValidationError if the container's requests or limits are invalid, or if `shm` is more than the memory limit
    of the result.

    Args:
        over: the `resources` of the container, in the form of the Kubernetes API.
    """
    requests, no_requests = _without_null(over.get("requests", {}))
    limits, no_limits = _without_null(over.get("limits", {}))
    given = {"requests": requests, "limits": limits}
    short = [kind for kind, amounts in given.items() if isinstance(amounts, Mapping) and "gpus" in amounts]
    if short:
        raise validation_error(
            *(
                ((kind, "gpus"), f"is a short name that only stepset's own fields accept; write {GPU_RESOURCE}")
                for kind in short
            )
        )
    more = Resources.model_validate(given)
    return Resources(
        requests={**_remaining(base.requests, no_requests), **more.requests},
        limits={**_remaining(base.limits, no_limits), **more.limits},
        shm=base.shm,
    )


def _without_null(amounts: Any) -> tuple[Any, frozenset[str] | None]:
    """Returns the quantities of a container that are not null, and the names of those that are null.

    If `amounts` itself is null, the names are None. Invalid values are returned unchanged.
    """
    if amounts is None:
        return {}, None
    if not isinstance(amounts, Mapping):
        return amounts, frozenset()
    removed = frozenset(str(name) for name, amount in amounts.items() if amount is None)
    return {name: amount for name, amount in amounts.items() if amount is not None}, removed


def _remaining(amounts: Mapping[str, str], removed: frozenset[str] | None) -> dict[str, str]:
    return {} if removed is None else {name: amount for name, amount in amounts.items() if name not in removed}


def cpu_count(resources: Resources) -> int:
    """Returns the number of CPUs of a pod, rounded up. The result is at least 1.

    The number is the pod's CPU request. If the pod has no CPU request, the number is the pod's CPU limit. Source:
    Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/torch/torch.go:110-226.
    """
    text = resources.requests.get("cpu", "0")
    cpus = ceil_quantity(text) or ceil_quantity(resources.limits.get("cpu", "0"))
    return max(1, cpus)
