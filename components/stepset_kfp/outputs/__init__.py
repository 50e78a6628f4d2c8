"""A step's artifacts, parameters and report."""
