"""Renders runs as HTML for notebooks and reports: escaped text, charts, and the status of a run."""
