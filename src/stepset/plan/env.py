"""Merges stepset's variables with the job's, and records the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    """Returns stepset's entries, then the job's; a reserved name that the job takes replaces ours in its place.

    The names in `ours` and `reserved` may be taken only with `override: true`, else BadInputError names the
    `framework`.
    """
    entries = {entry.name: entry for entry in ours}
    names = {*entries, *reserved, *ALWAYS_RESERVED}
    taken = [name for name, var in env.items() if name in names and not var.override]
    if taken:
        raise BadInputError(
            *(
                f"env.{name}: reserved, because {framework} jobs get it from stepset; leave it out,"
                f" or take it with {{value: ..., override: true}}"
                for name in sorted(taken)
            )
        )
    for name, var in env.items():
        if name in entries:
            entries[name] = EnvEntry(name, job_value(var), "overridden by the job", "job", replaced=entries[name].value)
    return (*entries.values(), *(e for e in job_entries(env) if e.name not in entries))
