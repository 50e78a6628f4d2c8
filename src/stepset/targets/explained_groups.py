"""Applies a job's `pod_template` to the groups of a plan, for `stepset explain`.

The resulting plan contains the commands, variables and images of the final pods. The targets do not use this module,
because they apply `pod_template` to complete pods (`pods/template.py`).
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
from stepset.targets.notes import container_notes
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.validation.pod_checks import template_problems

_PLANNED = {field: [f"<{field} of the plan>"] for field in ("command", "args")}
"""Placeholders for the command and the args of the plan, before `pod_template` is merged.

If `pod_template` replaces the command or the args, the merged container does not contain the placeholder.
"""


def explained_plan(job: TrainingJob, plan: LaunchPlan) -> LaunchPlan:
    """Returns the plan with the commands, variables and images that pods have after `pod_template` is applied.

    Raises BadInputError if `pod_template` cannot be merged.
    """
    if not job.pod_template:
        return plan
    if problems := list(template_problems(job, plan.group(plan.success.group))):
        raise BadInputError(*problems)
    groups = tuple(_explained(group, overlay_of(job, group)) for group in plan.groups)
    return replace(plan, groups=groups, notes=(*plan.notes, *_notes(job)))


def _notes(job: TrainingJob) -> Iterator[str]:
    yield from container_notes(job)
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
    """Returns the entry for a variable in a container's `env`. `pod_template` is merged afterwards."""
    field = "value" if isinstance(entry.value, Text) else "valueFrom"
    return {"name": entry.name, field: f"<{entry.name} of the plan>"}


def _set_by_agent(entry: EnvEntry) -> bool:
    return isinstance(entry.value, Text) and entry.value.needs_agent


def _without_agent(entries: tuple[EnvEntry, ...]) -> Iterator[EnvEntry]:
    """Yields the variables of a pod that runs without the agent.

    The agent sets the values of some variables. Without the agent, such a variable has only the value in the manifest.
    If the manifest contains no value for the variable, the result does not contain the variable.
    """
    for entry in entries:
        if not _set_by_agent(entry):
            yield entry
        elif entry.pod_value is not None:
            yield replace(entry, value=entry.pod_value, pod_value=None)


def _merged(group: PodGroup, before: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Iterator[EnvEntry]:
    """Yields the variables of a container after the merge, followed by variables that only the agent sets.

    Args:
        before: a mapping from the names of the variables to their entries in `env` before the merge.
        rows: the entries of `env` after the merge.
    """
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
            # The agent also sets this variable. `pod_template` can set it, because its entry has `from_pod`. Variables
            # of the agent without `from_pod` have reserved names.
            yield replace(entry, pod_value=_value(row), rule=f"{entry.rule}; pod_template sets the pod's value")
        else:
            yield EnvEntry(name, _value(row), "overridden by pod_template", "job", replaced=entry.value)
    yield from (entry for entry in entries.values() if _set_by_agent(entry))


def _value(row: Mapping[str, Any]) -> Value:
    """Returns the value of a variable from its entry in a container's `env`.

    If a plan cannot represent the source in `valueFrom`, the function returns a description of the source.
    """
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
