"""Merges the variables of stepset and of the job, records the reason for each, and lists those with secret values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from stepset.errors import BadInputError
from stepset.plan.expand import references
from stepset.plan.model import EnvEntry, LaunchPlan
from stepset.plan.values import RENDEZVOUS_ID, FieldValue, SecretValue, Text, Value
from stepset.spec.environ import EnvField, EnvSecret, EnvVar

ALWAYS_RESERVED = (
    "STEPSET_JOB",
    "STEPSET_RUN",
    "STEPSET_NODE_RANK",
    "STEPSET_NUM_NODES",
    "STEPSET_ATTEMPT",
    "STEPSET_RESULT_FILE",
    "STEPSET_CHECKPOINT_DIR",
    "STEPSET_RESUME_FROM",
    # The agent removes the following variables from the environment of the training code.
    "STEPSET_AGENT_DIR",
    "STEPSET_LIFELINE",
)


def job_value(var: EnvVar) -> Value:
    """Returns the plan's value for a variable of the job file."""
    if isinstance(var, EnvSecret):
        return SecretValue(var.secret, var.key)
    if isinstance(var, EnvField):
        return FieldValue(var.field)
    return Text((var.value,))


def job_entries(env: Mapping[str, EnvVar]) -> tuple[EnvEntry, ...]:
    """Returns the plan's entries for variables that only the job sets."""
    return tuple(EnvEntry(name, job_value(var), "set by the job", "job") for name, var in env.items())


def merge_env(
    ours: Iterable[EnvEntry], env: Mapping[str, EnvVar], reserved: Iterable[str], framework: str
) -> tuple[EnvEntry, ...]:
    """Returns the entries of stepset, followed by the entries of the job.

    If the job overrides an entry of stepset, the job's value takes the position of stepset's entry. There is one
    exception: a value that refers to an earlier variable of the job keeps the job's order. A container can refer
    only to variables that are defined before the reference.

    If an entry of stepset has `from_pod`, the job may set the variable without `override: true`. In this case, the pod
    gets the job's value, and the agent derives the value of each process from the pod's value. The agent does not do
    this if the job's value comes from a Secret, or if the job specifies `override: true`.

    Args:
        reserved: names of further variables that the job may set only with `override: true`.
        framework: the kind of the framework, for error messages.

    Raises:
        BadInputError: the job sets a reserved variable, or a variable of `ours`, without `override: true`.
    """
    entries = {entry.name: entry for entry in ours}
    if not env:
        return tuple(entries.values())
    for name, entry in entries.items():
        if entry.from_pod and name in env and not env[name].override and not isinstance(env[name], EnvSecret):
            rule = f"{entry.rule}; derived from the job's value"
            entries[name] = replace(entry, pod_value=job_value(env[name]), rule=rule)
            env = {key: value for key, value in env.items() if key != name}
    names = {*entries, *reserved, *ALWAYS_RESERVED}
    taken = [name for name, var in env.items() if name in names and not var.override]
    if taken:
        raise BadInputError(
            *(
                f"env.{name}: reserved, because {framework} jobs get it from stepset; leave it out,"
                f" or override it with {{value: ..., override: true}}"
                for name in sorted(taken)
            )
        )
    own = {entry.name: entry for entry in job_entries(env)}
    last: dict[str, EnvEntry] = {}  # these entries follow those of stepset, in the order of the job
    for name, entry in own.items():
        if name not in entries:
            last[name] = entry
            continue
        entry = replace(entry, rule="overridden by the job", replaced=entries[name].value)
        if _refers_to(entry.value, last) and name not in ALWAYS_RESERVED:  # other entries may refer to a reserved name
            del entries[name]
            last[name] = entry
        else:
            entries[name] = entry
    return (*entries.values(), *last.values())


def _refers_to(value: Value, names: Container[str]) -> bool:
    parts = [part for part in value.parts if isinstance(part, str)] if isinstance(value, Text) else []
    return any(found.name in names for part in parts if "$(" in part for found in references(part) if found.name)


def secret_variables(plan: LaunchPlan) -> list[str]:
    """Returns the names of the variables that contain either the random rendezvous ID or a value from a Secret.

    The result contains the variables of all groups, because a launcher can report failures and results of ranks that
    run in the pods of another group.
    """
    return sorted(
        {
            entry.name
            for group in plan.groups
            for entry in group.env
            if isinstance(entry.value, SecretValue) or entry.value == RENDEZVOUS_ID
        }
    )
