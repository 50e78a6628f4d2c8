"""Detects job settings that would make an API server reject the pods of the job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import LAUNCHER, NODE, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, SecretValue, Text
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.template import is_whole, node_container, node_place, pod_spec
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.security import RESTRICTED
from stepset.targets.pods.sidecars import ALWAYS, NEVER
from stepset.targets.pods.strategic_merge import MERGE_KEYS, merge
from stepset.targets.pods.template import CONTAINER
from stepset.targets.pods.volumes import SHARED_MEMORY
from stepset.targets.validation.pod_fields import CONTAINER_FIELDS, POD_FIELDS, ROW_FIELDS, SOURCE_FIELDS
from stepset.targets.validation.resource_checks import resource_problems
from stepset.targets.validation.restricted import restricted_problems
from stepset.targets.validation.scheduling import scheduling_problems
from stepset.targets.validation.syntax import is_config_key, is_label_key, label_problems, name_problem
from stepset.targets.validation.training_container import training_container_problems
from stepset.targets.validation.volume_mounts import mount_problems, shared_memory_problems
from stepset.unstructured import rows

# Matches the fields of a pod that can be the value of a variable (kubernetes v1.36
# pkg/apis/core/validation/validation.go).
_FIELD = re.compile(
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['(?P<key>[^']+)'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
_LEAST_POD: Mapping[str, Any] = {"spec": {"containers": [{"name": CONTAINER}]}}


def pod_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each problem."""
    yield from mount_problems(job, plan)
    yield from shared_memory_problems(job)
    yield from scheduling_problems(job, plan)
    if job.service_account is not None and (wrong := name_problem("service_account", job.service_account)):
        yield wrong
    for group in plan.groups:
        yield from _resources(job, group)
        yield from _env(group, f"roles.{group.name}.env" if group.role else "env")
    runs = plan.group(plan.success.group)
    if job.code_directory is not None and runs.agent is None:
        yield "code: only stepset's agent unpacks it; leave agent out, or put the code into the image"
    yield from template_problems(job, runs)
    yield from training_container_problems(job, plan)
    if job.network.policy and pod_spec(job.pod_template).get("hostNetwork"):
        yield "network.policy: has no effect on pods with pod_template.hostNetwork; leave one of them out"


def _resources(job: TrainingJob, group: PodGroup) -> Iterator[str]:
    """Yields one line for each problem of a group's resources. The line begins with the path of the field."""
    if not group.in_world:
        field = "framework.launcher_resources" if group.name == LAUNCHER else f"roles.{group.name}.resources"
        yield from resource_problems(group.resources, field)
        return
    ours, template = "resources_per_node", f"{node_place(job.pod_template)}.resources"
    own = {problem.removeprefix(ours) for problem in resource_problems(job.resources_per_node, ours)}
    for problem in resource_problems(group.resources, template):
        rest = problem.removeprefix(template)
        yield f"{ours if rest in own else template}{rest}"


def _env(group: PodGroup, field: str) -> Iterator[str]:
    for entry in group.env:
        value = entry.value
        if isinstance(value, Text):
            continue
        if isinstance(value, SecretValue):
            if wrong := name_problem(f"{field}.{entry.name}.secret", value.secret):
                yield wrong
            if not is_config_key(value.key):
                yield f"{field}.{entry.name}.key: {value.key!r} is not a key of a Secret; use letters, digits, '-_.'"
        if isinstance(value, FieldValue) and not _is_field(value.path):
            yield (
                f"{field}.{entry.name}.field: {value.path!r} is not a field of a pod that a variable can read; give for"
                " example status.hostIP or metadata.labels['NAME']"
            )


def _is_field(path: str) -> bool:
    match = _FIELD.fullmatch(path)
    return match is not None and (match["key"] is None or is_label_key(match["key"]))


def template_problems(job: TrainingJob, group: PodGroup) -> Iterator[str]:
    """Yields one line for each problem of `pod_template` that concerns the pods of a group."""
    if not job.pod_template:
        return
    given = overlay_of(job, group)
    problems = list(_template_fields(job, given))
    yield from problems
    if not problems and not node_container(merge(_LEAST_POD, given)):
        yield (
            f"pod_template: removes the container {CONTAINER!r}, which runs the training; omit the null or $patch that"
            " removes it"
        )


def _template_fields(job: TrainingJob, given: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(given, ("metadata", "spec"), "pod_template")
    yield from _metadata(given.get("metadata") or {})
    spec = given.get("spec") or {}
    if not isinstance(spec, Mapping):
        yield "pod_template.spec: is not a mapping; write {key: value}"
        return
    place = "pod_template.spec" if is_whole(job.pod_template) else "pod_template"
    yield from _unknown(spec, POD_FIELDS, place)
    for field, why in (
        ("restartPolicy", "a gang is started again as a whole; use restart"),
        ("ephemeralContainers", "Kubernetes adds them to running pods only; leave it out"),
        ("hostname", "pods find each other by the host names that stepset sets; leave it out"),
        ("subdomain", "use network.subdomain"),
    ):
        if field in spec:
            yield f"{place}.{field}: {why}"
    if job.security == RESTRICTED:
        yield from restricted_problems(given, place)
    yield from _entries(spec, place)
    yield from _unknown_volumes(job, spec, place)
    yield from _repeated_names(spec, place)
    for kind in ("containers", "initContainers"):
        rows = spec.get(kind)
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, Mapping) and row.get("name"):
                yield from _container(row, kind, f"{place}.{kind}.{row['name']}")


def _unknown_volumes(job: TrainingJob, spec: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields a problem for each volume mount whose volume is defined neither in the pod template nor by stepset."""
    own = [str(volume.get("name")) for volume in rows(spec, "volumes")]
    claims = {f"storage-{number}": claim for number, claim in enumerate(dict.fromkeys(s.claim for s in job.storage))}
    for name in claims.keys() & set(own):
        yield f"{place}.volumes.{name}: stepset uses this name for the claim {claims[name]!r}; give it another name"
    known = {*own, *claims, SHARED_MEMORY}
    for kind in ("containers", "initContainers"):
        for container in rows(spec, kind):
            for mount in rows(container, "volumeMounts"):
                name = str(mount.get("name"))
                field = f"{place}.{kind}.{container.get('name')}.volumeMounts.{name}"
                if name not in known and not name.startswith(("stepset-", "mpi-")) and "$patch" not in mount:
                    names = ", ".join(sorted(known))
                    yield f"{field}: no volume has this name; add it to {place}.volumes, or use one of {names}"


def _repeated_names(spec: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields a problem for each init container that has the same name as another container of the pod."""
    taken = {CONTAINER, *(str(row["name"]) for row in rows(spec, "containers") if row.get("name"))}
    for row in rows(spec, "initContainers"):
        if str(row.get("name")) in taken and row.get("$patch") != "delete":
            yield f"{place}.initContainers.{row['name']}: a container has this name, too; give it another name"


def _metadata(metadata: Any) -> Iterator[str]:
    for field in ("labels", "annotations") if isinstance(metadata, Mapping) else ():
        place, keys = f"pod_template.metadata.{field}", metadata.get(field) or {}
        if not isinstance(keys, Mapping):
            yield f"{place}: is not a mapping; write {{key: value}}"
            continue
        texts = {str(key): value if isinstance(value, str) else str(value) for key, value in keys.items()}
        yield from label_problems(place, texts, values=field == "labels")


def _container(row: Mapping[str, Any], kind: str, place: str) -> Iterator[str]:
    yield from _unknown(row, CONTAINER_FIELDS, place)
    ours = kind == "containers" and row["name"] == CONTAINER
    if not ours and not row.get("image") and "$patch" not in row:
        yield f"{place}: a container needs an image; give one, or name it {NODE!r} to mean the training container"
    if kind == "containers" and not ours:
        yield from _sidecar(row, place)
    yield from _entries(row, place)
    for field, known in ROW_FIELDS.items():
        for number, entry in enumerate(row[field] if isinstance(row.get(field), list) else ()):
            if isinstance(entry, Mapping):
                name = f"{place}.{field}.{entry.get('name', number)}"
                yield from _unknown(entry, known, name)
                yield from _source(entry.get("valueFrom"), f"{name}.valueFrom")


def _source(source: Any, place: str) -> Iterator[str]:
    """Yields a problem for each unknown field of a variable's `valueFrom`."""
    if not isinstance(source, Mapping):
        return
    yield from _unknown(source, tuple(SOURCE_FIELDS), place)
    for kind, known in SOURCE_FIELDS.items():
        if isinstance(reference := source.get(kind), Mapping):
            yield from _unknown(reference, known, f"{place}.{kind}")


def _sidecar(row: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields a problem for each field that a container beside the training container cannot have."""
    allowed: Mapping[str, tuple[Any, ...]] = {"restartPolicy": (None, ALWAYS, NEVER), "restartPolicyRules": (None, [])}
    for name in (name for name, values in allowed.items() if row.get(name) not in values):
        yield (
            f"{place}.{name}: a container beside {CONTAINER!r} is a sidecar, which is restarted until {CONTAINER!r} has"
            " ended; leave it out, or write restartPolicy: Never for a container that ends by itself"
        )


def _entries(part: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields a problem for each list entry that lacks the merge key of its list."""
    for field, key in MERGE_KEYS.items():
        rows = part.get(field)
        if rows is None:
            continue
        if not isinstance(rows, list):
            yield f"{place}.{field}: is not a list; write [..]"
            continue
        for number, row in enumerate(rows):
            if row != {"$patch": "replace"} and not (isinstance(row, Mapping) and isinstance(row.get(key), str | int)):
                yield f"{place}.{field}.{number}: has no {key}; entries are merged by it"


def _unknown(part: Mapping[str, Any], known: tuple[str, ...], place: str) -> Iterator[str]:
    for key in part:
        if key not in known and key != "$patch":
            yield f"{place}: unknown field {key!r}; {nearest(str(key), known)}"
