"""What is asked for: TrainingJob, the job file's model, and how it is loaded."""

from stepset.spec.job import TrainingJob
from stepset.spec.load import load_job, parse_job

__all__ = ["TrainingJob", "load_job", "parse_job"]
