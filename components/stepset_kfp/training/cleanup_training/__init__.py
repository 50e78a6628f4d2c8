"""A component for exit handlers. It deletes the trainings of a pipeline run, except trainings that have succeeded."""

from .component import cleanup_training

__all__ = ["cleanup_training"]
