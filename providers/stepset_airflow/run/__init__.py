"""Modules that create or find the run of a task, follow the run, and handle the end of the run."""
