"""One module for each target: which Kubernetes objects a plan becomes."""
