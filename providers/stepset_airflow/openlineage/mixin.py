"""Reports a training to OpenLineage: its inputs and outputs, and a facet of the run.

Airflow's OpenLineage provider, if it is installed and enabled, calls these methods; OpenLineage is imported only then.
The methods leave out arguments, environment and logs, which may contain secrets.
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
"""Name of the run facet."""


class TrainingLineage:
    """The operator's methods for OpenLineage."""

    # Attributes of the operator.
    inlets: list[Any]
    outlets: list[Any]
    checkpoint_dir: str | None
    _environment: dict[str, str]
    _status: RunStatus | None = None
    """The final status; None until the run is over."""

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Returns the lineage at the start: the job, and the checkpoint from which it starts."""
        return self._lineage(outputs=self.outlets)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Lineage:
        """Returns the lineage of a successful run, with its final status and the checkpoint that it wrote."""
        status, checkpoint = self._status, self.checkpoint_dir
        if status is not None and isinstance(status.result, Mapping):
            checkpoint = status.result.get(CHECKPOINT) or checkpoint
        return self._lineage(outputs=[*self.outlets, checkpoint])

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Lineage:
        """Returns the lineage of a failed run, without its checkpoint, because other tasks should not use that."""
        return self._lineage(outputs=self.outlets)

    def _lineage(self, outputs: Iterable[Any]) -> Lineage:
        from airflow.providers.openlineage.extractors.base import OperatorLineage

        from stepset_airflow.openlineage.facets import datasets, training_facet

        return OperatorLineage(
            inputs=datasets([*self.inlets, self._environment.get(WARM_START)]),
            outputs=datasets(outputs),
            run_facets={FACET: training_facet(self._job_or_none(), self._status)},
        )

    def _job_or_none(self) -> TrainingJob | None:
        """Returns the job; None if it is not valid, or incomplete because its function is added when the task runs."""
        from stepset.errors import BadInputError

        try:
            job: TrainingJob = self.job_and_base()[0]  # type: ignore[attr-defined]  # the operator's
        except BadInputError:
            return None
        return job
