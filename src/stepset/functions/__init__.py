"""Converts Python functions to programs for the field `function` of a job.

A program contains either the source of the function or the files of the function's module.
"""
