"""One module for each target, which renders a plan as Kubernetes objects."""
