"""What an API server would refuse about a job's pods: storage, resources, variables, `pod_template`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, SecretValue
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.quantity import parse_quantity
from stepset.targets.overlay import MERGE_KEYS
from stepset.targets.pod import CONTAINER, overlay_of
from stepset.targets.podfields import CONTAINER_FIELDS, POD_FIELDS
from stepset.targets.syntax import CONFIG_KEY, name_problem

_OURS = ("/stepset", "/dev/shm")
# What the downward API has as variables (kubernetes v1.36 pkg/apis/core/validation/validation.go).
_FIELD = re.compile(
    r"^(metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^']+'\]|spec\.(nodeName|serviceAccountName)"
    r"|status\.(hostIPs?|podIPs?))$"
)


def pod_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """One line for each thing."""
    yield from _storage(job)
    if job.service_account is not None and (wrong := name_problem("service_account", job.service_account)):
        yield wrong
    for group in plan.groups:
        field = "resources_per_node" if group.in_world else f"roles.{group.name}.resources"
        yield from _resources(group, field)
        yield from _env(
            group, "env" if group.in_world or group.name == plan.success.group else f"roles.{group.name}.env"
        )
    runs = plan.group(plan.success.group)
    if job.code is not None and runs.agent is None:
        yield "code: without stepset's agent nobody unpacks it; leave agent out, or put the code into the image"
    yield from _template(job, plan.group(plan.success.group))


def _storage(job: TrainingJob) -> Iterator[str]:
    seen: set[str] = set()
    for number, storage in enumerate(job.storage):
        field = f"storage.{number}"
        path = storage.path.rstrip("/") or "/"
        if wrong := name_problem(f"{field}.claim", storage.claim):
            yield wrong
        if path in seen:
            yield f"{field}.path: {path} is mounted twice; give each its own"
        seen.add(path)
        if path == "/" or ":" in path:
            yield f"{field}.path: {storage.path!r} cannot be mounted on; give a directory without ':'"
        if path in _OURS or path.startswith("/stepset/"):
            yield f"{field}.path: {path} is stepset's own; give another"
        if storage.sub_path is not None and (storage.sub_path.startswith("/") or ".." in storage.sub_path.split("/")):
            yield f"{field}.sub_path: {storage.sub_path!r} leaves the volume; give a folder inside it"


def _resources(group: PodGroup, field: str) -> Iterator[str]:
    requests, limits = group.resources.requests, group.resources.limits
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is not None and parse_quantity(asked) > parse_quantity(limit):
            yield f"{field}: the request {name}: {asked} is more than the limit {limit}; raise the limit"
        if "/" in name and (limit is None or parse_quantity(asked) != parse_quantity(limit)):
            yield f"{field}: {name} cannot be shared; make request and limit the same"


def _env(group: PodGroup, field: str) -> Iterator[str]:
    for entry in group.env:
        value = entry.value
        if isinstance(value, SecretValue):
            if wrong := name_problem(f"{field}.{entry.name}.secret", value.secret):
                yield wrong
            if not CONFIG_KEY.match(value.key):
                yield f"{field}.{entry.name}.key: {value.key!r} is not a key of a Secret; it has letters, digits, '-_.'"
        if isinstance(value, FieldValue) and not _FIELD.match(value.path):
            yield (
                f"{field}.{entry.name}.field: {value.path!r} is not a field of a pod that a variable can hold; such as"
                " status.hostIP or metadata.labels['NAME']"
            )


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
