"""Runs jobs on a Kubernetes cluster, and validates jobs with its API server.

The `kubernetes` package is imported inside functions only, so that stepset works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.backend import KubernetesBackend


def kubernetes_backend(options: ClusterOptions | None = None, interface: str = "cli") -> KubernetesBackend:
    """Returns the backend for a cluster, by default that of the kubeconfig's current context; sends nothing yet.

    `interface` (cli, airflow or kfp) is an argument of the `stepset rbac` command in error messages.
    Raises BadInputError if the `kubernetes` package is missing or there is no usable kubeconfig.
    """
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.api.connection import connect
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.watch.cluster.follow_policy import Timeouts

    options = options or ClusterOptions()
    return KubernetesBackend(
        connect(options.kubeconfig, options.context),
        namespace=options.namespace,
        target=options.target,
        sources=options.sources,
        timeouts=Timeouts(options.admission_timeout, options.startup_timeout),
        interface=interface,
    )
