"""Checks the settings of a task when KFP compiles the pipeline."""
