"""The rows of `stepset explain`, which lists the variables of every pod group and the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass

from stepset.plan.model import LaunchPlan
from stepset.plan.values import FieldValue, Resolver, SecretValue, Value, resolve


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One variable of one pod group.

    Args:
        group: the name of the pod group.
        count: the number of pods in the group.
        variable: the name of the variable.
        value: the value of the variable. If the value differs between pods, this is a placeholder such as `<...>`. If
            the value comes from a Secret, this is the name and the key of the Secret.
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
    """Returns one row for every variable of every group. The order is that of the variables in the pods.

    Args:
        resolver: a function that returns the text for a placeholder.
    """
    return [
        ExplainRow(
            group=group.name,
            count=group.count,
            variable=entry.name,
            value=show(entry.value, resolver),
            rule=entry.rule,
            replaced=show(entry.replaced, resolver) if entry.replaced is not None else "",
            origin=entry.origin,
        )
        for group in plan.groups
        for entry in group.env
    ]
