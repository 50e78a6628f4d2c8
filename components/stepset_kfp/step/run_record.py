"""The record of a step's run: what a step needs besides the workload to follow the run and to write the outputs.

An annotation of the run contains the record, because the inputs and files of the step may have changed since the run
was created, or may no longer exist. A user who may change the annotation may also change the pods of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.run_status import RunStatus
from stepset.unstructured import part, text
from stepset.watch.bounded_json import parse_json
from stepset.watch.cluster.follow_policy import Timeouts
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.outputs.artifacts import ModelSettings

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

RECORD = "kfp.stepset.dev/record"
"""The annotation of a run that contains the record as JSON."""


@dataclass(frozen=True)
class RunRecord:
    """The record of a step's run. The values come from the step that created the run.

    Args:
        log_ranks: the input `log_ranks`.
        timeouts: how long the run may need to start.
        model: how the step stores the model.
    """

    log_ranks: str
    timeouts: Timeouts
    model: ModelSettings

    @classmethod
    def of(cls, given: Mapping[str, Any], job: TrainingJob) -> RunRecord:
        """Returns the record of a new run. `given` are the inputs of the step."""
        timeouts = Timeouts(given["admission_timeout"] or None, given["startup_timeout"] or None)
        return cls(given["log_ranks"], timeouts, ModelSettings.of(job))

    def to_text(self) -> str:
        """Returns the record as the value of the annotation."""
        return json.dumps(asdict(self))


def record_of(workload: Mapping[str, Any]) -> RunRecord | None:
    """Returns the record in the annotation of a run. Returns None if there is no valid record."""
    from msgspec import ValidationError, convert

    try:
        record = convert(parse_json(text(part(workload, "metadata", "annotations"), RECORD)), RunRecord)
        ranks_to_log(record.log_ranks)
    except (ValidationError, ValueError, RecursionError, BadInputError):
        return None
    return record


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, and what the step needs to write the outputs.

    Args:
        status: the last status of the run.
        model: how the step stores the model.
        work_dir: the working directory of the ranks of a local run. None for a run on a cluster, or with shipped code.
    """

    status: RunStatus
    model: ModelSettings
    work_dir: Path | None = None
