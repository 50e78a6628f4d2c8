"""The body of the component `distributed_train`. It runs a job and writes the outputs of the component.

If an input is invalid, if the run fails, or if the cluster refuses the run, the step exits with a message and an exit
code other than 0. The step prints no traceback, because a traceback would hide the message.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepset.errors import BadInputError, InfrastructureError, RunStoppedError, StepsetError
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import backend_name
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.options import check_options
from stepset_kfp.outputs.artifacts import result_text, write_metrics, write_model, write_text
from stepset_kfp.outputs.report import report_html
from stepset_kfp.packing import from_text, unpack
from stepset_kfp.step.executor_input import decoded_inputs
from stepset_kfp.step.parent import ending_with_starter
from stepset_kfp.step.step_log import StepLog, log_lines
from stepset_kfp.task_config import with_task_config

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class StepInputs:
    """The job and the backend that the inputs of a step describe.

    Args:
        job: the job.
        base_dir: the directory to which the paths of `script` and `code` are relative.
        backend: the name of the backend.
        notes: messages about settings of the task that could not be applied.
    """

    job: TrainingJob
    base_dir: Path
    backend: str
    notes: tuple[str, ...] = ()


def train(given: Mapping[str, Any]) -> None:
    """Runs the job and writes the outputs of the step.

    If the run cannot be started or fails, ends the step as failed.
    """
    try:
        _train(given)
    except StepsetError as error:
        fail(str(error), int(error.exit_code))
    except OSError as error:
        file = error.filename or "a file of the step"
        advice = "a step must be able to write to its temporary directory"
        fail(f"{file}: {error.strerror or error}; {advice}", int(InfrastructureError.exit_code))


def _train(component_inputs: Mapping[str, Any]) -> None:
    given = decoded_inputs(component_inputs)
    with tempfile.TemporaryDirectory(prefix="stepset-") as unpacked:
        inputs = read(given, Path(unpacked))
        log = StepLog(ranks_to_log(given["log_ranks"]))
        log_lines(*(f"stepset: {note}" for note in inputs.notes))
        status = run(inputs, given, log)
    write_output("run", given["run"], status.name)
    write_output("report", given["report"].path, report_html(status, log.history))
    if status.phase is not Phase.SUCCEEDED:
        fail(failure_text(status), int(status.exit_code))
    work_dir = inputs.base_dir if inputs.job.code is None else None
    log_lines(f"stepset: {write_model(given['model'], status, inputs.job, work_dir)}")
    if omitted := write_metrics(given["metrics"], status):
        log_lines(f"stepset: metrics: omitted because not finite, or because of a long name: {', '.join(omitted)}")
    write_output("result", given["result"], result_text(status))


def write_output(name: str, path: str, text: str) -> None:
    """Writes an output of the step. If the output cannot be written, the function logs the error.

    The step then continues, because the run has ended: a retry of the step would repeat a training that has succeeded.
    """
    try:
        write_text(path, text)
    except OSError as error:
        log_lines(f"stepset: {name}: not written: {error.strerror or error}")


def read(given: Mapping[str, Any], unpacked: Path) -> StepInputs:
    """Reads the inputs of the component, and unpacks the packed code into the empty directory `unpacked`.

    Raises BadInputError if an input is invalid.
    """
    from stepset.spec.load import parse_job

    check_options(given)
    backend = backend_name(given["backend"], os.environ)
    mapping, notes = with_task_config(job_mapping(given), given.get("task_config"))
    base_dir = Path.cwd()
    if (archive := _archive(given)) is not None:
        code = unpacked / str(mapping.get("code") or ".")
        code.mkdir(parents=True, exist_ok=True)
        unpack(archive, code)
        base_dir = unpacked
    return StepInputs(parse_job(mapping), base_dir, backend, notes)


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


def fail(message: str, code: int = 1) -> NoReturn:
    """Logs a message, and exits with the given exit code. The step ends as failed."""
    log_lines(*(f"stepset: {line}" for line in message.splitlines()))
    sys.exit(code)


def request_of(inputs: StepInputs) -> RunRequest:
    """Reads the files of a step's job, and returns the request to run the job.

    The request contains no note about imports that may be missing in the pods. This note is already logged when the
    pipeline is compiled. In the step, the note would be wrong, because the image of the step does not contain the
    packages of the training code.
    """
    from stepset.backends.base import RunRequest
    from stepset.sources import read_sources

    return RunRequest(inputs.job, replace(read_sources(inputs.job, inputs.base_dir), missing=()))


def run(inputs: StepInputs, given: Mapping[str, Any], log: StepLog) -> RunStatus:
    """Runs a job on its backend. If the step receives a signal, exits with 128 plus the number of the signal."""
    request = request_of(inputs)
    if inputs.backend == "kubernetes":
        from stepset_kfp.step.cluster_run import run_on_cluster

        return run_on_cluster(request, given, log)
    with ending_with_starter():
        return _run_locally(request, log)


def _run_locally(request: RunRequest, log: StepLog) -> RunStatus:
    """Runs the ranks as processes on this machine.

    If the step receives a signal, the function stops the ranks, and waits until the grace period has ended.
    """
    import signal

    from stepset.backends import backend_of
    from stepset.signals import StopRequests, on_signals

    received: list[int] = []
    requests = StopRequests()

    def stop(number: int) -> None:
        received.append(number)
        requests.add()

    try:
        with on_signals((signal.SIGTERM, signal.SIGINT), stop):
            handle = backend_of("local").start(replace(request, stopping=requests.exist), log)
            requests.attach(handle.cancel)
            status = handle.wait()
    except RunStoppedError:
        _fail_stopped("the run", received[0])
    if received:
        _fail_stopped(f"run {status.name}", received[0])
    return status


def _fail_stopped(run: str, number: int) -> NoReturn:
    fail(f"{run} was stopped because its step received signal {number}", 128 + number)
