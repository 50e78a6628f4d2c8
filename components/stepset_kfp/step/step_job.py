"""Reads the job of a step, and its files. Only a local run and the creation of a run on a cluster need the job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.options import check_options
from stepset_kfp.packing import from_text, unpack
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.task_config import with_task_config

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class StepInputs:
    """The job that the inputs of a step describe.

    Args:
        job: the job.
        base_dir: the directory to which the paths of `script` and `code` are relative.
        notes: messages about settings of the task that could not be applied.
    """

    job: TrainingJob
    base_dir: Path
    notes: tuple[str, ...] = ()


class StepJob:
    """The job of a step, which is read when it is first needed.

    Args:
        read_inputs: reads the inputs of the step. Raises BadInputError if an input is invalid.
    """

    def __init__(self, read_inputs: Callable[[], StepInputs]) -> None:
        self._read_inputs = read_inputs

    @cached_property
    def inputs(self) -> StepInputs:
        """The inputs. The notes of the inputs are logged when the inputs are read. Raises BadInputError."""
        inputs = self._read_inputs()
        log_lines(*(f"stepset: {note}" for note in inputs.notes))
        return inputs

    @cached_property
    def request(self) -> RunRequest:
        """The request to run the job. Raises BadInputError if the job's files cannot be read.

        The request contains no note about imports that may be missing in the pods. This note is already logged when the
        pipeline is compiled. In the step, the note would be wrong, because the image of the step does not contain the
        packages of the training code.
        """
        from stepset.backends.base import RunRequest
        from stepset.sources import read_sources

        inputs = self.inputs
        return RunRequest(inputs.job, replace(read_sources(inputs.job, inputs.base_dir), missing=()))


def read(given: Mapping[str, Any], unpacked: Path) -> StepInputs:
    """Reads the inputs of the component, and unpacks the packed code into the empty directory `unpacked`.

    Raises BadInputError if an input is invalid.
    """
    from stepset.spec.load import parse_job

    check_options(given)
    mapping, notes = with_task_config(job_mapping(given), given.get("task_config"))
    base_dir = Path.cwd()
    if (archive := _archive(given)) is not None:
        code = unpacked / str(mapping.get("code") or ".")
        code.mkdir(parents=True, exist_ok=True)
        unpack(archive, code)
        base_dir = unpacked
    return StepInputs(parse_job(mapping), base_dir, notes)


def _archive(given: Mapping[str, Any]) -> bytes | None:
    """Returns the archive with the code from the input `packed_code` or `files`. Returns None if both are missing.

    Raises BadInputError if the input does not contain an archive.
    """
    files = given.get("files")
    if files is None:
        return from_text(given["packed_code"]) if given.get("packed_code") else None
    try:
        archive = Path(files.path).read_bytes()
    except OSError as error:
        raise BadInputError(
            f"files: {files.uri} cannot be read: {error.strerror}; compile the pipeline again with"
            " STEPSET_KFP_CODE_STORE set to a directory of KFP's object store"
        ) from error
    if Path(files.uri).name.partition(".")[0] != hashlib.sha256(archive).hexdigest():
        raise BadInputError(f"files: {files.uri} has changed since the pipeline was compiled; compile it again")
    return archive
