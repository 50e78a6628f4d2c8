"""Reports the inputs, the outputs and a run facet of a run to OpenLineage.

Airflow's OpenLineage provider calls the methods of this module, if this provider is installed and enabled. OpenLineage
is imported only in these methods, so the operator works without OpenLineage. The methods do not report arguments,
environment variables or logs, because these may contain secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.assets import CHECKPOINT, WARM_START

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import RunFacet

    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob

    Lineage = OperatorLineage[Dataset, RunFacet]

FACET = "stepset_training"
"""The name of the run facet."""


class TrainingLineage:
    """The methods of the operator that Airflow's OpenLineage provider calls."""

    # These attributes belong to the operator.
    inlets: list[Any]
    outlets: list[Any]
    checkpoint_dir: str | None
    warm_start_env: Mapping[str, str]
    _status: RunStatus | None = None
    """The final status of the run. None until the run has finished."""

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Returns the lineage at the start of the task.

        The lineage contains the run facet of the job. If the run starts from the checkpoint of an asset, the checkpoint
        is an input.
        """
        return self._lineage(outputs=self.outlets)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Lineage:
        """Returns the lineage of a successful run.

        The lineage contains the final status of the run. The checkpoint that the run wrote is an output.
        """
        status, checkpoint = self._status, self.checkpoint_dir
        if status is not None and isinstance(status.result, Mapping):
            checkpoint = status.result.get(CHECKPOINT) or checkpoint
        return self._lineage(outputs=[*self.outlets, checkpoint])

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Lineage:
        """Returns the lineage of a failed run.

        The checkpoint of a failed run is not an output, because other tasks should not use this checkpoint.
        """
        return self._lineage(outputs=self.outlets)

    def _lineage(self, outputs: Iterable[Any]) -> Lineage:
        from airflow.providers.openlineage.extractors.base import OperatorLineage

        from stepset_airflow.openlineage.facets import datasets, training_facet

        return OperatorLineage(
            inputs=datasets([*self.inlets, self.warm_start_env.get(WARM_START)]),
            outputs=datasets(outputs),
            run_facets={FACET: training_facet(self._job_or_none(), self._status)},
        )

    def _job_or_none(self) -> TrainingJob | None:
        """Returns the job, or None if the job is not valid.

        If the decorator created the task, the job is invalid before the task runs, because the program is missing.
        """
        from stepset.errors import BadInputError
        from stepset_airflow.run.job_fields import job_of_task

        try:
            return job_of_task(self)[0]  # type: ignore[arg-type]  # the operator
        except BadInputError:
            return None
