"""A component that waits for a run that was not started by this pipeline."""

from .component import wait_for_training

__all__ = ["wait_for_training"]
