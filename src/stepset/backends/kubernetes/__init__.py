"""Kubernetes: runs on a cluster, and what its server says about a job beforehand.

The only place that imports the `kubernetes` package, and only inside functions: everything else works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.backend import KubernetesBackend


def kubernetes_backend(options: ClusterOptions | None = None) -> KubernetesBackend:
    """The backend for a cluster; nothing is sent yet.

    Args:
        options: which cluster; default: that of the kubeconfig's current context.

    Raises:
        BadInputError: the `kubernetes` package is missing, or there is no kubeconfig that can be used.
    """
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.api.connection import connect
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.watch.cluster.keeper import Patience

    asked = options or ClusterOptions()
    return KubernetesBackend(
        connect(asked.kubeconfig, asked.context),
        namespace=asked.namespace,
        target=asked.target,
        sources=asked.sources,
        patience=Patience(asked.admission_timeout, asked.startup_timeout),
    )
