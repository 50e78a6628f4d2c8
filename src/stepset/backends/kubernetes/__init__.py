"""Kubernetes: how stepset speaks with an API server. Called by `stepset validate --server`.

The only place that imports the `kubernetes` package, and only inside functions: everything else works without it.
"""
