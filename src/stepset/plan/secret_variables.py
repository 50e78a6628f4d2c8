"""The variables of a plan whose values must not be stored or reported."""

from __future__ import annotations

from stepset.plan.model import LaunchPlan
from stepset.plan.values import RENDEZVOUS_ID, SecretValue


def secret_variables(plan: LaunchPlan) -> list[str]:
    """Returns the names of the variables whose values come from Secrets or are the random rendezvous ID, in all groups.

    Of all groups, because a launcher reports failures and results of ranks in other pods.
    """
    return sorted(
        {
            entry.name
            for group in plan.groups
            for entry in group.env
            if isinstance(entry.value, SecretValue) or entry.value == RENDEZVOUS_ID
        }
    )
