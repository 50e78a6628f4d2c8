"""Determines the state of a run on Kubernetes from the Kubernetes objects and from the lines of the agents.

The modules use no I/O and no clock (docs/design/kubernetes.md).
"""
