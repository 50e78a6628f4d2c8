"""A step that deletes the trainings that a pipeline's run has left, for exit handlers."""

from .component import cleanup_training

__all__ = ["cleanup_training"]
