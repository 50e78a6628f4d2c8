"""The plan with `pod_template` merged over its groups: the commands, variables and images that the pods get.

`stepset explain` shows it. The targets merge `pod_template` over whole pods (`pods/template.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepset.errors import BadInputError
from stepset.plan.model import EnvEntry, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, SecretValue, Text, Value, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.template import node_container, node_env_from
from stepset.targets.names import CONTAINER
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.validation.pods import template_problems

_PLANNED = {field: [f"<{field} of the plan>"] for field in ("command", "args")}
"""Placeholders for the command and args of the plan: `pod_template` changes a field if the merge replaces its value."""


def explained_plan(job: TrainingJob, plan: LaunchPlan) -> LaunchPlan:
    """Returns the plan with the commands, variables and images that the job's `pod_template` gives to the pods.

    Raises BadInputError for a `pod_template` that cannot be merged.
    """
    if not job.pod_template:
        return plan
    if problems := list(template_problems(job, plan.group(plan.success.group))):
        raise BadInputError(*problems)
    groups = tuple(_explained(group, overlay_of(job, group)) for group in plan.groups)
    return replace(plan, groups=groups, notes=(*plan.notes, *_notes(job)))


def _notes(job: TrainingJob) -> Iterator[str]:
    sources = node_env_from(job.pod_template)
    if sources:
        keys = f"the keys of {' and '.join(sources)}"
        yield f"pod_template: {keys} are variables, too, unless a variable above has the name"


def _explained(group: PodGroup, overlay: Mapping[str, Any]) -> PodGroup:
    rows = {entry.name: _row(entry) for entry in group.env}
    base = {"name": CONTAINER, "image": group.image, "env": list(rows.values()), **_PLANNED}
    container = node_container(merge({"spec": {"containers": [base]}}, overlay))
    own = {field: container.get(field) or [] for field in _PLANNED}
    if own["command"] != _PLANNED["command"]:
        group = replace(
            group,
            command=texts(map(str, own["command"])),
            command_rule=f"set by pod_template{'; the agent does not run' if group.agent else ''}",
            serves_ssh=False,
            agent=None,
            env=tuple(_without_agent(group.env)) if group.agent else group.env,
        )
    if own["args"] != _PLANNED["args"]:
        group = replace(group, args=texts(map(str, own["args"])))
    image = container.get("image")
    env = tuple(_merged(group, rows, container.get("env") or []))
    return replace(group, image=None if image is None else str(image), env=env)


def _row(entry: EnvEntry) -> dict[str, Any]:
    """Returns a row that is still the same after the merge, unless `pod_template` changes the variable."""
    field = "value" if isinstance(entry.value, Text) else "valueFrom"
    return {"name": entry.name, field: f"<{entry.name} of the plan>"}


def _set_by_agent(entry: EnvEntry) -> bool:
    return isinstance(entry.value, Text) and entry.value.needs_agent


def _without_agent(entries: tuple[EnvEntry, ...]) -> Iterator[EnvEntry]:
    """Yields the variables of the pod's manifest: those that the agent would set are absent, or have another value."""
    for entry in entries:
        if not _set_by_agent(entry):
            yield entry
        elif entry.pod_value is not None:
            yield replace(entry, value=entry.pod_value, pod_value=None)


def _merged(group: PodGroup, before: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Iterator[EnvEntry]:
    """Yields the variables of the merged `rows` in their order, then those that only the agent sets."""
    entries = {entry.name: entry for entry in group.env}
    for row in rows:
        name = row["name"]
        entry = entries.pop(name, None)
        if row == before.get(name):
            if entry is not None:
                yield entry
        elif entry is None:
            yield EnvEntry(name, _value(row), "set by pod_template", "job")
        elif _set_by_agent(entry):
            # Without `from_pod`, the agent's value replaces that of the pod, and the name is reserved.
            yield replace(entry, pod_value=_value(row), rule=f"{entry.rule}; pod_template sets the pod's value")
        else:
            yield EnvEntry(name, _value(row), "overridden by pod_template", "job", replaced=entry.value)
    yield from (entry for entry in entries.values() if _set_by_agent(entry))


def _value(row: Mapping[str, Any]) -> Value:
    """Returns the value of a row of a container's `env`; a text that names the source if the plan has no such value."""
    source = row.get("valueFrom") or {}
    for kind, field in source.items():
        match kind:
            case "fieldRef":
                return FieldValue(str(field.get("fieldPath")))
            case "secretKeyRef":
                return SecretValue(str(field.get("name")), str(field.get("key")))
            case "configMapKeyRef":
                return text(f"<ConfigMap {field.get('name')}, key {field.get('key')}>")
            case "resourceFieldRef":
                return text(f"<resource {field.get('resource')}>")
            case "fileKeyRef":
                return text(f"<file {field.get('path')} of volume {field.get('volumeName')}, key {field.get('key')}>")
    value = row.get("value")
    return text("" if value is None else str(value))
