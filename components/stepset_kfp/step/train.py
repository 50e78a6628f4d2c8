"""Runs one training from a component's inputs to its outputs: the body of the component `distributed_train`.

Invalid input, a failed training and a refusal by the cluster end the step with a message and an exit code other than
0, without a traceback, which would hide the message.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepset.errors import InfrastructureError, StepsetError
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import backend_name
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.options import check_options
from stepset_kfp.outputs.artifacts import result_text, write_metrics, write_model, write_text
from stepset_kfp.outputs.report import report_html
from stepset_kfp.packing import unpack
from stepset_kfp.step.parent import ending_with_starter
from stepset_kfp.step.step_log import StepLog, log_lines
from stepset_kfp.task_config import with_task_config

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class StepInputs:
    """A step's job and backend; `notes` name the settings of the task that could not be applied."""

    job: TrainingJob
    base_dir: Path
    backend: str
    notes: tuple[str, ...] = ()


def train(given: Mapping[str, Any]) -> None:
    """Runs a training and writes the step's outputs; fails the step if the training cannot be run or fails."""
    try:
        _train(given)
    except StepsetError as error:
        fail(str(error), int(error.exit_code))
    except OSError as error:
        file = error.filename or "a file of the step"
        advice = "a step must be able to write to its temporary directory and to its output directories"
        fail(f"{file}: {error.strerror or error}; {advice}", int(InfrastructureError.exit_code))


def _train(given: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="stepset-") as unpacked:
        inputs = read(given, Path(unpacked))
        log = StepLog(ranks_to_log(given["log_ranks"]))
        log_lines(*(f"stepset: {note}" for note in inputs.notes))
        status = run(inputs, given, log)
    write_text(given["run"], status.name)
    write_text(given["report"].path, report_html(status, log.history))
    if status.phase is not Phase.SUCCEEDED:
        fail(failure_text(status), int(status.exit_code))
    log_lines(f"stepset: {write_model(given['model'], status, inputs.job)}")
    if omitted := write_metrics(given["metrics"], status):
        log_lines(f"stepset: metrics: omitted because not finite: {', '.join(omitted)}")
    write_text(given["result"], result_text(status))


def read(given: Mapping[str, Any], unpacked: Path) -> StepInputs:
    """Reads the component's inputs; unpacks their files into an empty directory. Raises BadInputError."""
    from stepset.spec.load import parse_job

    check_options(given)
    backend = backend_name(given["backend"], os.environ)
    mapping, notes = with_task_config(job_mapping(given), given.get("task_config"))
    base_dir = Path.cwd()
    if given.get("packed"):
        code = unpacked / str(mapping.get("code") or ".")
        code.mkdir(parents=True, exist_ok=True)
        unpack(given["packed"], code)
        base_dir = unpacked
    return StepInputs(parse_job(mapping), base_dir, backend, notes)


def fail(message: str, code: int = 1) -> NoReturn:
    """Ends the step with a message and an exit code."""
    log_lines(*(f"stepset: {line}" for line in message.splitlines()))
    sys.exit(code)


def run(inputs: StepInputs, given: Mapping[str, Any], log: StepLog) -> RunStatus:
    """Runs a training on its backend; if the step receives a signal, ends the step with exit code 128 + signal."""
    from stepset.backends.base import RunRequest
    from stepset.sources import read_sources

    request = RunRequest(inputs.job, read_sources(inputs.job, inputs.base_dir))
    if inputs.backend == "kubernetes":
        from stepset_kfp.step.cluster_run import run_on_cluster

        return run_on_cluster(request, given, log)
    with ending_with_starter():
        return _run_locally(request, log)


def _run_locally(request: RunRequest, log: StepLog) -> RunStatus:
    """Runs the ranks as processes; a signal stops them and gives them their grace period."""
    import signal

    from stepset.backends import backend_of
    from stepset.signals import StopRequests, on_signals

    received: list[int] = []
    requests = StopRequests()

    def stop(number: int) -> None:
        received.append(number)
        requests.add()

    with on_signals((signal.SIGTERM, signal.SIGINT), stop):
        handle = backend_of("local").start(request, log)
        requests.attach(handle.cancel)
        status = handle.wait()
    if received:
        fail(f"run {status.name} was stopped because its step received signal {received[0]}", 128 + received[0])
    return status
