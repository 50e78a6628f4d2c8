"""Detects the framework of a script and creates a job file for `stepset init`."""
