"""Determines the accelerators of a pod, and the number of processes that `procs_per_node: auto` means for this pod.

The rules differ from those of Kubeflow Trainer v2.3.0. Trainer counts every resource whose name contains "gpu", even if
a unit of the resource is not a device (pkg/runtime/runtime.go:289-315).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from stepset.spec.known_devices import KNOWN, AnyGpu, DeviceResource, Unit
from stepset.spec.quantity import ceil_quantity, parse_quantity
from stepset.spec.template import node_claims, pod_annotations

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob
    from stepset.spec.resources import Resources

_PRECEDENCE: tuple[Unit, ...] = ("device", "mig", "uncounted", "whole", "percent", "share")
# Matches names of resources with a quantity that is not a number of devices. For example, the quantity of
# example.com/gpu-memory is an amount of memory. A name such as example.com/compute-gpu is that of a device, but
# example.com/gpu-compute is an amount of computing power.
_AMOUNT = re.compile(
    r"(?:^|[^a-z]|gpu)(?:v?mem(?:ory)?|vram|hbm(?!\d)|v?cores?|milli(?:cores)?|compute(?!.*gpu)|percent(?:age)?|ratio|tflops"
    r"|priority|bandwidth|tiles?|monitoring|nic\d*|rdma|hca|sriov)(?:[^a-z]|$)"
)
# Matches names of resources that are not accelerators, such as network interfaces and device files.
_OTHER = re.compile(
    r"(?:^|[^a-z])(?:[a-z]*nics?|net[a-z]*|rdma|roce|hca|ib|infiniband|sriov|vfs?|hostdev|eni|ips?|qat|fuse"
    r"|licenses?)\d*(?:[^a-z]|$)"
)
_FRACTION = ("gpu-fraction", "gpu-memory")
_RESOURCES = "resources_per_node"
_FRACTION_DEVICES = "gpu-fraction-num-devices"


@dataclass(frozen=True, slots=True)
class Devices:
    """The accelerators of a pod.

    Args:
        name: the name of the resource, annotation or claim that requests the accelerators. "" if the pod requests none.
        count: the number of devices. 0 if the pod requests no devices, or if the number cannot be determined.
        processes: the number of processes per node for `procs_per_node: auto`. 0 if there are no devices.
        rule: the reason for the number of processes, such as "4 x nvidia.com/gpu".
        unit: the meaning of one unit of the resource.
        problem: an error message if `procs_per_node: auto` cannot determine the number of processes. Otherwise "".
        invalid: the field whose value `problem` is about, if the value is invalid whatever procs_per_node is.
        ignored: the names of other device resources that the pod requests. They are not counted.
        hint: when another number of processes is right, or "".
        unknown: the names of requested resources that may be accelerators. They are not counted. Empty if the pod
            requests other accelerators.
    """

    name: str = ""
    count: int = 0
    processes: int = 0
    rule: str = ""
    unit: Literal["", Unit] = ""
    problem: str = ""
    invalid: str = ""
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    hint: str = ""

    @property
    def counted_by_torchrun(self) -> bool:
        """Whether torchrun can count the devices.

        The name of the resource must contain "gpu". Kubeflow Trainer uses the same rule.
        """
        return self.unit == "device" and "gpu" in self.name.lower()


def devices_of(
    resources: Resources, annotations: Mapping[str, Any] | None = None, claims: Iterable[str] = ()
) -> Devices:
    """Returns the accelerators of a pod.

    If the pod requests several device resources, only one of them determines the number of processes. The following
    rules select this resource:

    1. Resources of whole devices take precedence over shares of devices.
    2. Names that contain "gpu" take precedence over other names.
    3. The first name in alphabetical order takes precedence.

    If a resource has both a request and a limit, the request is used.

    Args:
        annotations: the annotations of the pod. Run:ai and the KAI scheduler use annotations for shares of GPUs.
        claims: the names of the container's claims for dynamic resource allocation.
    """
    amounts = _amounts(resources)
    units = {name: unit_of(name) for name in amounts}
    names = sorted(
        (name for name, unit in units.items() if unit != "none"),
        key=lambda name: (_PRECEDENCE.index(units[name]), "gpu" not in name.lower(), name),
    )
    if not names:
        unknown = tuple(sorted(name for name in amounts if _may_be_accelerator(name)))
        return _fraction(annotations or {}) or _claimed(tuple(claims)) or Devices(unknown=unknown)
    return _counted(names, units, amounts)


def node_devices(job: TrainingJob) -> Devices:
    """Returns the accelerators of each pod of the job's nodes."""
    template = job.pod_template
    annotations = {**job.annotations, **pod_annotations(template)}
    return devices_of(job.node_resources(), annotations, node_claims(template))


def unit_of(name: str) -> Unit:
    """Returns the meaning of one unit of a resource.

    >>> unit_of("nvidia.com/gpu"), unit_of("volcano.sh/vgpu-memory"), unit_of("example.com/gpu"), unit_of("rdma/hca")
    ('device', 'share', 'device', 'none')
    """
    row = _row(name)
    return row.unit if row else _unit_by_words(name)


def _row(name: str) -> DeviceResource | None:
    lower = name.lower()
    return next((row for row in KNOWN if any(fnmatchcase(lower, pattern.lower()) for pattern in row.names)), None)


def _unit_by_words(name: str) -> Unit:
    kind = name.lower().rpartition("/")[2]
    if "gpu" not in name.lower():
        return "none"
    if _AMOUNT.search(kind):
        return AnyGpu.AMOUNT
    return AnyGpu.SHARED if kind.endswith((".shared", "-shared")) else AnyGpu.DEVICE


def _may_be_accelerator(name: str) -> bool:
    """Returns whether a resource that is not counted may be an accelerator, because its meaning is unknown."""
    return "/" in name and _row(name) is None and not _OTHER.search(name.lower().rpartition("/")[2])


def _amounts(resources: Resources) -> dict[str, str]:
    """Returns a mapping from resource names to quantities. Requests take precedence over limits.

    Quantities of zero are left out.
    """
    both = {name: amount for name, amount in resources.limits.items() if parse_quantity(amount)}
    return both | {name: amount for name, amount in resources.requests.items() if parse_quantity(amount)}


def _counted(names: list[str], units: Mapping[str, Unit], amounts: Mapping[str, str]) -> Devices:
    """Returns the devices of the resource with the highest precedence.

    Args:
        names: the names of the requested device resources. The name with the highest precedence is first.
    """
    name = names[0]
    unit = units[name]
    whole = [each for each in names if units[each] in ("device", "mig", "uncounted", "whole")]
    migs = [each for each in whole if units[each] == "mig"]
    beside = [each for each in whole if each.startswith("nvidia.com/") and units[each] == "device"]
    if len(migs) > 1 or (migs and beside):
        kinds = " and ".join(sorted({*migs, *beside}))
        problem = (
            f"the devices of {kinds} differ in size, and a process uses either one MIG device or whole GPUs; request"
            " only one of these resources, or give procs_per_node as a number"
        )
        return Devices(name, 0, 0, "", unit, problem)
    if unit in ("device", "mig", "uncounted", "whole") and parse_quantity(amounts[name]) % 1:
        problem = f"{name}: {amounts[name]} is not a whole number; devices cannot be divided; give a whole number"
        return Devices(name, 0, 0, "", unit, problem, _RESOURCES)
    number = ceil_quantity(amounts[name])
    if unit == "uncounted":
        row = _row(name)
        problem = f"{name}: {row.meaning if row else ''}; give procs_per_node as a number"
        return Devices(name, number, 0, "", unit, problem)
    ignored = tuple(each for each in whole if each != name)
    if unit in ("device", "mig"):
        return Devices(name, number, number, f"{number} x {name}", unit, ignored=ignored)
    if unit == "whole":
        row = _row(name)
        hint = row.hint if row else ""
        return Devices(name, number, 1, f"{name}: one process for all", unit, ignored=ignored, hint=hint)
    if unit == "percent":
        return _percent([each for each in names if units[each] == "percent"], amounts)
    return Devices(name, 1, 1, f"{name}: a share of one device", unit)


def _percent(names: list[str], amounts: Mapping[str, str]) -> Devices:
    name = max(names, key=lambda each: parse_quantity(amounts[each]))
    number = parse_quantity(amounts[name])
    if number > 100 and number % 100:
        problem = (
            f"{name}: {amounts[name]} is more than 100 and not a multiple of it; give 100 for each device, or less for"
            " a share of one device"
        )
        return Devices(name, 0, 0, "", "percent", problem, _RESOURCES)
    devices = max(1, int(number // 100))
    return Devices(name, devices, devices, f"{amounts[name]} % of {name}, 100 for each device", "percent")


def _fraction(annotations: Mapping[str, Any]) -> Devices | None:
    """Returns the devices that Run:ai's annotations request, or None if the pod has no such annotation."""
    name = next((name for name in _FRACTION if name in annotations), None)
    if name is None:
        return None
    number = str(annotations.get(_FRACTION_DEVICES, "1"))
    if not number.isdigit() or not int(number):
        problem = f"annotation {_FRACTION_DEVICES}: {number!r} is not a number of devices; give a whole number"
        return Devices(name, 0, 0, "", "share", problem, "annotations")
    return Devices(name, int(number), int(number), f"annotation {name}: a share of {number} x GPU", "share")


def _claimed(claims: tuple[str, ...]) -> Devices | None:
    if not claims:
        return None
    problem = (
        f"the number of devices of the resource claim {claims[0]!r} is not in the job; give procs_per_node as a number,"
        " or cpu"
    )
    return Devices(claims[0], 0, 0, "", "uncounted", problem)
