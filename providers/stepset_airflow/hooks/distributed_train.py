"""`DistributedTrainHook`, with which the code of a task examines a run on a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepset_airflow.hooks.cluster import ClusterAccess, connect

if TYPE_CHECKING:
    from stepset import Stacks


class DistributedTrainHook:
    """Examines the runs of one cluster. The parameters have the same meaning as those of DistributedTrainOperator.

    Args:
        kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file: the cluster and the namespace of the
            runs.
    """

    def __init__(
        self,
        kubernetes_conn_id: str | None = "kubernetes_default",
        namespace: str | None = None,
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
    ) -> None:
        self._access = ClusterAccess(kubernetes_conn_id, namespace, in_cluster, cluster_context, config_file)

    def stacks(self, run: str, *, ranks: int | str | Iterable[int | str] | None = None) -> Stacks:
        """Returns the stacks of the running ranks of a run. The ranks continue.

        The account of the connection needs the permission that `stepset rbac --with exec` grants.

        Args:
            run: the name of the run, for example from the XCom or the link of a task, or the name of a job.
            ranks: the ranks: a number, a string such as `0,2-3`, or a list. Default: all ranks.

        Returns:
            The stacks. `print` shows them as text. `page()` returns a self-contained HTML page.

        Raises:
            stepset.BadInputError: no selected rank is running, or an argument is not valid.
            stepset.RunNotFoundError: no run has this name.
            stepset.InfrastructureError: no stack can be read.
        """
        from stepset import Stacks
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.log_sources import check_sources
        from stepset.runs import selected_sources

        sources = selected_sources(ranks)
        backend = KubernetesBackend(connect(self._access), namespace=self._access.namespace, interface="airflow")
        if sources is not None:
            check_sources(sources, backend.status(run), "ranks")
        return Stacks.of(backend.stacks(run, sources))
