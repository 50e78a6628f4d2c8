"""A step that waits for a run that was started elsewhere."""

from .component import wait_for_training

__all__ = ["wait_for_training"]
