"""What every pod gets, and why: LaunchPlan and the values in it."""

from stepset.plan.model import EnvEntry, LaunchPlan, PodGroup

__all__ = ["EnvEntry", "LaunchPlan", "PodGroup"]
