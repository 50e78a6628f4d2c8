"""Checks, without contacting a cluster, whether a cluster would reject a job.

Errors name the fields of the job file.
"""
