"""A component for exit handlers. The component deletes the trainings of a pipeline run that have not succeeded."""

from .component import cleanup_training

__all__ = ["cleanup_training"]
