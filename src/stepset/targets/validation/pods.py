"""What an API server would refuse about a job's pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, SecretValue
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.targets.pods.strategic_merge import MERGE_KEYS
from stepset.targets.pods.template import CONTAINER, overlay_of
from stepset.targets.validation.pod_fields import CONTAINER_FIELDS, POD_FIELDS
from stepset.targets.validation.resources import resource_problems
from stepset.targets.validation.scheduling import place_problems
from stepset.targets.validation.syntax import is_config_key, is_label_key, name_problem
from stepset.targets.validation.volume_mounts import mount_problems

# Fields that the downward API allows in variables (kubernetes v1.36 pkg/apis/core/validation/validation.go).
_FIELD = re.compile(
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['(?P<key>[^']+)'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)


def pod_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """One line for each problem."""
    yield from mount_problems(job, plan)
    yield from place_problems(job.scheduling)
    if job.service_account is not None and (wrong := name_problem("service_account", job.service_account)):
        yield wrong
    for group in plan.groups:
        field = "resources_per_node" if group.in_world else f"roles.{group.name}.resources"
        yield from resource_problems(group.resources, field)
        trains = group.in_world or group.name == plan.success.group
        yield from _env(group, "env" if trains else f"roles.{group.name}.env")
    runs = plan.group(plan.success.group)
    if job.code is not None and runs.agent is None:
        yield "code: only stepset's agent unpacks it; leave agent out, or put the code into the image"
    yield from _template(job, runs)


def _env(group: PodGroup, field: str) -> Iterator[str]:
    for entry in group.env:
        value = entry.value
        if isinstance(value, SecretValue):
            if wrong := name_problem(f"{field}.{entry.name}.secret", value.secret):
                yield wrong
            if not is_config_key(value.key):
                yield f"{field}.{entry.name}.key: {value.key!r} is not a key of a Secret; it has letters, digits, '-_.'"
        if isinstance(value, FieldValue) and not _is_field(value.path):
            yield (
                f"{field}.{entry.name}.field: {value.path!r} is not a field of a pod that a variable can have; give for"
                " example status.hostIP or metadata.labels['NAME']"
            )


def _is_field(path: str) -> bool:
    match = _FIELD.fullmatch(path)
    return match is not None and (match["key"] is None or is_label_key(match["key"]))


def _template(job: TrainingJob, group: PodGroup) -> Iterator[str]:
    if not job.pod_template:
        return
    given = overlay_of(job, group)
    yield from _unknown(given, ("metadata", "spec"), "pod_template")
    spec = given.get("spec") or {}
    if not isinstance(spec, Mapping):
        yield "pod_template.spec: is not a mapping; write {key: value}"
        return
    whole = "spec" in job.pod_template or "metadata" in job.pod_template
    place = "pod_template.spec" if whole else "pod_template"
    yield from _unknown(spec, POD_FIELDS, place)
    for field, why in (
        ("restartPolicy", "a gang is started again as a whole; use restart"),
        ("hostname", "pods are found by the name they get; leave it out"),
        ("subdomain", "use network.subdomain"),
    ):
        if field in spec:
            yield f"{place}.{field}: {why}"
    yield from _entries(spec, place)
    for kind in ("containers", "initContainers"):
        rows = spec.get(kind)
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, Mapping) and row.get("name"):
                yield from _container(row, kind, f"{place}.{kind}.{row['name']}")


def _container(row: Mapping[str, Any], kind: str, place: str) -> Iterator[str]:
    yield from _unknown(row, CONTAINER_FIELDS, place)
    ours = kind == "containers" and row["name"] == CONTAINER
    if not ours and not row.get("image") and "$patch" not in row:
        yield f"{place}: a container without image; give one, or call it {NODE!r} to mean the training container"
    yield from _entries(row, place)


def _entries(part: Mapping[str, Any], place: str) -> Iterator[str]:
    """Lists are merged by a key, which every entry must have."""
    for field, key in MERGE_KEYS.items():
        rows = part.get(field)
        if rows is None:
            continue
        if not isinstance(rows, list):
            yield f"{place}.{field}: is not a list; write [..]"
            continue
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or (key not in row and row != {"$patch": "replace"}):
                yield f"{place}.{field}.{number}: has no {key}; entries are merged by it"


def _unknown(part: Mapping[str, Any], known: tuple[str, ...], place: str) -> Iterator[str]:
    for key in part:
        if key not in known and key != "$patch":
            yield f"{place}: unknown field {key!r}; {nearest(str(key), known)}"
