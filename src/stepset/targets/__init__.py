"""Renders a LaunchPlan as Kubernetes objects: one module per target, and the modules that targets share."""
