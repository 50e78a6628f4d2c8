"""The body of the component `distributed_train`, which runs a job and writes the outputs of the component.

If an input is invalid, if the run fails, or if the cluster refuses the run, the step exits with a message and an exit
code other than 0. The step prints no traceback, because a traceback would hide the message.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepset.directory_trees import discard_tree
from stepset.errors import InfrastructureError, RunStoppedError, StepsetError
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import backend_name
from stepset_kfp.outputs.artifacts import ModelSettings, result_text, write_metrics, write_model, write_text
from stepset_kfp.outputs.report import report_html
from stepset_kfp.step.executor_input import decoded_inputs
from stepset_kfp.step.parent import ending_with_starter
from stepset_kfp.step.run_record import EndedRun
from stepset_kfp.step.step_job import StepJob, read
from stepset_kfp.step.step_log import StepLog, log_lines

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest


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
    log = StepLog()
    unpacked = Path(tempfile.mkdtemp(prefix="stepset-"))
    try:
        ended = run(StepJob(lambda: read(given, unpacked)), given, log)
    finally:
        discard_tree(unpacked)
    status = ended.status
    write_output("run", given["run"], status.name)
    write_output("report", given["report"].path, report_html(status, log.history))
    if status.phase is not Phase.SUCCEEDED:
        fail(failure_text(status), int(status.exit_code))
    log_lines(f"stepset: {write_model(given['model'], status, ended.model, ended.work_dir)}")
    if omitted := write_metrics(given["metrics"], status):
        log_lines(f"stepset: metrics: omitted because not finite, or because of a long name: {', '.join(omitted)}")
    write_output("result", given["result"], result_text(status))


def write_output(name: str, path: str, text: str) -> None:
    """Writes an output of the step. If the output cannot be written, the function logs the error.

    The step then continues, because the run has ended. If the step failed, a retry would repeat a training that has
    succeeded.
    """
    try:
        write_text(path, text)
    except OSError as error:
        log_lines(f"stepset: {name}: not written: {error.strerror or error}")


def fail(message: str, code: int = 1) -> NoReturn:
    """Logs a message, and exits with the given exit code. The step ends as failed."""
    log_lines(*(f"stepset: {line}" for line in message.splitlines()))
    sys.exit(code)


def run(job: StepJob, given: Mapping[str, Any], log: StepLog) -> EndedRun:
    """Runs a job on its backend. If the step receives a signal, exits with 128 plus the number of the signal."""
    if backend_name(given["backend"], os.environ) == "kubernetes":
        from stepset_kfp.step.cluster_run import run_on_cluster

        return run_on_cluster(job, given, log)
    request, inputs = job.request, job.inputs
    log.ranks = ranks_to_log(given["log_ranks"])
    with ending_with_starter():
        status = _run_locally(request, log)
    return EndedRun(status, ModelSettings.of(inputs.job), inputs.base_dir if inputs.job.code is None else None)


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
