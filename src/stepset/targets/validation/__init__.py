"""Checks for problems that a cluster would reject, before anything is sent; errors name fields of the job file."""
