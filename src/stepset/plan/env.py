"""Merges stepset's variables with the job's, and records the reason for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stepset.errors import BadInputError
from stepset.plan.model import EnvEntry
from stepset.plan.values import FieldValue, SecretValue, Text, Value
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
    # The agent removes these from the environment of the training code.
    "STEPSET_AGENT_DIR",
    "STEPSET_LIFELINE",
)


def job_value(var: EnvVar) -> Value:
    """The plan's value for a variable of the job file."""
    if isinstance(var, EnvSecret):
        return SecretValue(var.secret, var.key)
    if isinstance(var, EnvField):
        return FieldValue(var.field)
    return Text((var.value,))


def job_entries(env: Mapping[str, EnvVar]) -> tuple[EnvEntry, ...]:
    """Entries for variables that only the job sets."""
    return tuple(EnvEntry(name, job_value(var), "set by the job", "job") for name, var in env.items())


def merge_env(
    ours: Iterable[EnvEntry], env: Mapping[str, EnvVar], reserved: Iterable[str], framework: str
) -> tuple[EnvEntry, ...]:
    """Returns stepset's entries, then the job's; an entry that the job overrides stays in its position.

    For an entry with `from_pod`, the job's value is set in the pod, and the agent derives each process's value from it.
    With `override: true`, the job's value replaces the entry, as for any other variable; a value from a Secret is
    accepted only in this way.

    Raises:
        BadInputError: the job sets a name of `ours` or `reserved` without `override: true`.
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
    for name, var in env.items():
        if name in entries:
            entries[name] = EnvEntry(name, job_value(var), "overridden by the job", "job", replaced=entries[name].value)
    return (*entries.values(), *(e for e in job_entries(env) if e.name not in entries))
