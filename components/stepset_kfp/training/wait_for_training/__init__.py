"""A step that completes when a training started elsewhere does."""

from .component import wait_for_training

__all__ = ["wait_for_training"]
