"""Joins the evidence of all ranks of a run that makes no progress, and classifies the hang. Pure functions.

docs/design/hangs.md describes the events of the agents.
"""
