"""Renders a `LaunchPlan` as Kubernetes objects.

The package `kinds` contains one module for each target. All targets share the other modules.
"""
