"""Arguments and flags, and the job that they describe."""
