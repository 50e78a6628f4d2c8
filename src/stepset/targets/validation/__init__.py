"""Checks whether a cluster would reject a job, before anything is sent; errors name fields of the job file."""
