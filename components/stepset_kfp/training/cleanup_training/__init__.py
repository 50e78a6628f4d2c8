"""A step for exit handlers that deletes the trainings that a pipeline run left behind."""

from .component import cleanup_training

__all__ = ["cleanup_training"]
