"""The body of the component `wait_for_training`, which waits for a run that another program started."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import Backend, ClusterOptions
from stepset.errors import InfrastructureError, RunNotFoundError, StepsetError
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import failure_text
from stepset.watch.present.sentences import phase_words
from stepset_kfp.backend import backend_name
from stepset_kfp.outputs.artifacts import result_text
from stepset_kfp.outputs.report import report_html
from stepset_kfp.step.executor_input import decoded_inputs
from stepset_kfp.step.step_log import StepLog, log_lines
from stepset_kfp.step.train import fail, write_output

_POLL_SECONDS = 2.0
"""The number of seconds between two searches for a run that does not exist yet."""
_STATUS_SECONDS = 10.0
"""The number of seconds between two reads of the run's status. The step logs each change of the status."""


def wait(component_inputs: Mapping[str, Any]) -> None:
    """Waits until the run has finished, and writes the outputs of the step.

    If the run fails or does not finish in time, ends the step as failed.
    """
    log = StepLog()
    try:
        given = decoded_inputs(component_inputs)
        name = backend_name(given["backend"], os.environ)
        cluster = ClusterOptions(namespace=given["namespace"] or None) if name == "kubernetes" else None
        backend = backend_of(name, cluster, interface="kfp")
        status = _wait_for_end(backend, given["run"], time.monotonic() + given["timeout"], log)
    except StepsetError as error:
        fail(str(error), int(error.exit_code))
    write_output("report", given["report"].path, report_html(status, log.history))
    if status.phase is not Phase.SUCCEEDED:
        fail(failure_text(status), int(status.exit_code))
    write_output("result", given["result"], result_text(status))


def _wait_for_end(backend: Backend, run: str, until: float, log: StepLog) -> RunStatus:
    reported = False
    while True:
        left = until - time.monotonic()
        try:
            status = backend.wait(run, timeout=min(_STATUS_SECONDS, max(0.0, left)))
        except RunNotFoundError as error:
            if left <= 0:
                raise InfrastructureError(f"{error}; the timeout of the step has expired") from error
            if not reported:
                reported = True
                log_lines(f"stepset: run {run!r} does not exist yet; waiting for it")
            time.sleep(min(_POLL_SECONDS, max(0.0, left)))
            continue
        log.on_status(status)
        if status.phase.final:
            return status
        if left <= 0:
            state = phase_words(status.phase, status.reason)
            raise InfrastructureError(f"run {status.name} is still {state}; give a longer timeout")
