"""The rows of `stepset explain`, which lists the variables of every pod group and the reason for each variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stepset.plan.expand import expand
from stepset.plan.model import EnvEntry, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, Resolver, SecretValue, Text, Value, resolve


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One variable of one pod group.

    Args:
        group: the name of the pod group.
        count: the number of pods in the group.
        variable: the name of the variable.
        value: the value that the process gets. If the value differs between pods, this is a placeholder such as
            `<...>`. If the value comes from a Secret, this is the name and the key of the Secret.
        rule: the reason for the variable.
        replaced: stepset's value, if the job's `env` or `pod_template` overrides this value. Otherwise "".
        origin: `job` if the job sets the variable, or `stepset` if stepset sets the variable.
    """

    group: str
    count: int
    variable: str
    value: str
    rule: str
    replaced: str
    origin: str


def show(value: Value, resolver: Resolver) -> str:
    """Returns a value as text. If the value comes from a Secret, returns the name and the key of the Secret."""
    if isinstance(value, SecretValue):
        return f"<secret {value.secret}, key {value.key}>"
    if isinstance(value, FieldValue):
        return f"<field {value.path}>"
    return resolve(value, resolver)


def explain_plan(plan: LaunchPlan, resolver: Resolver) -> list[ExplainRow]:
    """Returns one row for every variable of every group, in the order of the variables in the pods.

    Args:
        resolver: a function that returns the text for a placeholder.
    """
    return [
        ExplainRow(
            group=group.name,
            count=group.count,
            variable=entry.name,
            value=value,
            rule=entry.rule,
            replaced=show(entry.replaced, resolver) if entry.replaced is not None else "",
            origin=entry.origin,
        )
        for group in plan.groups
        for entry, value in zip(group.env, _values(group, resolver), strict=True)
    ]


def explain_command(group: PodGroup, resolver: Resolver) -> list[str]:
    """Returns the command of a group as its processes get it, with references such as `$(NAME)` and `$$` replaced."""
    known = _in_manifest(group, resolver)
    return [expand(resolve(word, resolver), known) for word in (*group.command, *group.args)]


def _values(group: PodGroup, resolver: Resolver) -> Iterator[str]:
    """Yields the values that the processes of a group get for the variables of the group.

    A variable in a manifest may refer to the variables before it (Kubernetes API, EnvVar). The values of variables that
    the agent sets contain no references.
    """
    known: dict[str, str] = {}
    for entry in group.env:
        text = show(entry.value, resolver)
        yield text if _of_agent(entry.value) or not isinstance(entry.value, Text) else expand(text, known)
        _add(known, entry, resolver)


def _in_manifest(group: PodGroup, resolver: Resolver) -> Mapping[str, str]:
    """Returns the variables that the manifest of a group contains, to which commands can refer."""
    known: dict[str, str] = {}
    for entry in group.env:
        _add(known, entry, resolver)
    return known


def _add(known: dict[str, str], entry: EnvEntry, resolver: Resolver) -> None:
    value = entry.pod_value if _of_agent(entry.value) else entry.value
    if value is not None:
        text = show(value, resolver)
        known[entry.name] = expand(text, known) if isinstance(value, Text) else text


def _of_agent(value: Value) -> bool:
    return isinstance(value, Text) and value.needs_agent
