"""Renders pod templates, including their containers, variables and volumes. Merges the job's `pod_template`."""
