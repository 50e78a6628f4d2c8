"""The state of a run on Kubernetes, from its objects and its agents' lines; pure (docs/design/kubernetes.md)."""
