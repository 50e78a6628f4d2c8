"""Checks the objects of a run with an API server, and creates these objects."""
