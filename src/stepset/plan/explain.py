"""The variables of every pod and their rules, as rows: the content of `stepset explain`."""

from __future__ import annotations

from dataclasses import dataclass

from stepset.plan.model import LaunchPlan
from stepset.plan.values import FieldValue, Resolver, SecretValue, Value, resolve


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One variable of one pod group.

    Args:
        group: the pod group.
        count: the number of its pods.
        variable: the variable's name.
        value: its value; `<...>` where it differs between pods, a secret by its name only.
        rule: the reason for the variable.
        replaced: the value that the job's `env` or `pod_template` overrides; else "".
        origin: stepset or job.
    """

    group: str
    count: int
    variable: str
    value: str
    rule: str
    replaced: str
    origin: str


def show(value: Value, resolver: Resolver) -> str:
    """Returns a value as text; never the content of a secret."""
    if isinstance(value, SecretValue):
        return f"<secret {value.secret}, key {value.key}>"
    if isinstance(value, FieldValue):
        return f"<field {value.path}>"
    return resolve(value, resolver)


def explain_plan(plan: LaunchPlan, resolver: Resolver) -> list[ExplainRow]:
    """Returns one row for every variable of every group, in the pods' order; `resolver` fills in placeholders."""
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
