"""What OpenLineage is told of a training: inputs and outputs, and a facet about the run.

Mixed into the operator. Airflow's OpenLineage provider calls these methods where it is installed and switched on; only
then is anything imported for it. Arguments, environment and logs are not told: they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.assets import CHECKPOINT, WARM_START

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import RunFacet

    from stepset.spec import TrainingJob
    from stepset.watch.state import RunStatus

    Lineage = OperatorLineage[Dataset, RunFacet]

FACET = "stepset_training"
"""Name of the run facet."""


class TrainingLineage:
    """The operator's side of OpenLineage."""

    # The operator's own.
    inlets: list[Any]
    outlets: list[Any]
    checkpoint_dir: str | None
    _environment: dict[str, str]
    _status: RunStatus | None = None
    """How the run ended, once that is known."""

    def get_openlineage_facets_on_start(self) -> Lineage:
        """What is known before the run: the job, where it starts from."""
        return self._lineage(outputs=self.outlets)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Lineage:
        """What is known afterwards: how it ended, and the checkpoint that it left.

        Args:
            task_instance: Airflow's; not needed.
        """
        status, left = self._status, self.checkpoint_dir
        if status is not None and isinstance(status.result, Mapping):
            left = status.result.get(CHECKPOINT) or left
        return self._lineage(outputs=[*self.outlets, left])

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Lineage:
        """What is known of a run that failed, its diagnosis; its checkpoint is nothing that others should use.

        Args:
            task_instance: Airflow's; not needed.
        """
        return self._lineage(outputs=self.outlets)

    def _lineage(self, outputs: Iterable[Any]) -> Lineage:
        from airflow.providers.openlineage.extractors.base import OperatorLineage

        from stepset_airflow.openlineage_facets import datasets, training_facet

        return OperatorLineage(
            inputs=datasets([*self.inlets, self._environment.get(WARM_START)]),
            outputs=datasets(outputs),
            run_facets={FACET: training_facet(self._job_or_none(), self._status)},
        )

    def _job_or_none(self) -> TrainingJob | None:
        """The job; None where it is no job, or not one yet: a function that is decorated becomes one when it runs."""
        from stepset.errors import BadInputError

        try:
            job: TrainingJob = self.job_and_base()[0]  # type: ignore[attr-defined]  # the operator's
        except BadInputError:
            return None
        return job
