"""Converts the `job` argument of the Python API to a TrainingJob.

The argument can be a function, the path of a script or a job file, a mapping, or a TrainingJob.
"""
