"""The rows of `stepset explain`, which lists the variables of every pod group and the reason for each variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.plan.expand import expand
from stepset.plan.model import LaunchPlan, PodGroup
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
        for entry, value in zip(group.env, _values(group, resolver)[0], strict=True)
    ]


def explain_command(group: PodGroup, resolver: Resolver) -> list[str]:
    """Returns the command of a group as its processes get it, with references such as `$(NAME)` and `$$` replaced."""
    _, known = _values(group, resolver)
    return [expand(resolve(word, resolver), known) for word in (*group.command, *group.args)]


def _values(group: PodGroup, resolver: Resolver) -> tuple[list[str], Mapping[str, str]]:
    """Returns the values that the processes of a group get for the variables of the group.

    The second element is the variables that the manifest of the group contains, to which commands can refer. A variable
    in a manifest may refer to the variables before it (Kubernetes API, EnvVar). The values of variables that the agent
    sets contain no references.
    """
    values: list[str] = []
    known: dict[str, str] = {}
    for entry in group.env:
        of_agent = isinstance(entry.value, Text) and entry.value.needs_agent
        in_manifest = entry.pod_value if of_agent else entry.value
        if in_manifest is not None:
            text = show(in_manifest, resolver)
            known[entry.name] = expand(text, known) if isinstance(in_manifest, Text) else text
        values.append(show(entry.value, resolver) if of_agent else known[entry.name])
    return values, known
