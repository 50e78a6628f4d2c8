"""The variables of a plan whose values must not be stored or reported."""

from __future__ import annotations

from stepset.plan.model import LaunchPlan
from stepset.plan.values import RENDEZVOUS_ID, SecretValue


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
