"""Stops a run if the owner of the run has finished and will not be retried. A pod in the cluster watches the owner.

docs/design/orphans.md describes the design.
"""
