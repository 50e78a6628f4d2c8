"""Runs jobs on a Kubernetes cluster, and validates jobs with the API server.

The modules import the `kubernetes` package only inside functions. Therefore stepset can be imported even if this
package is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.backends.option_names import Interface


def kubernetes_backend(
    options: ClusterOptions | None = None, interface: Interface = "python", *, read_only: bool = False
) -> KubernetesBackend:
    """Returns the backend for a cluster. The default is the cluster of the kubeconfig's current context.

    This function sends no request to the cluster. `KubernetesBackend` describes `interface` and `read_only`.

    Raises BadInputError if the `kubernetes` package is missing or no usable kubeconfig exists.
    """
    from stepset.backends.base import ClusterOptions
    from stepset.backends.kubernetes.api.portal import connect
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.watch.cluster.follow_policy import Timeouts

    options = options or ClusterOptions()
    return KubernetesBackend(
        connect(options.kubeconfig, options.context, interface),
        namespace=options.namespace,
        target=options.target,
        sources=options.sources,
        timeouts=Timeouts(options.admission_timeout, options.startup_timeout),
        interface=interface,
        read_only=read_only,
    )
