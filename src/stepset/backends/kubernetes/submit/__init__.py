"""Checks a run's objects with an API server, and creates them."""
