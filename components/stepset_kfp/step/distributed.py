"""The program that runs in the step of a component that `distribute` created.

The command of the step is `python3 -m stepset_kfp.step.distributed --settings JSON -- COMMAND...`. COMMAND is the
command of the original component. COMMAND contains KFP's executor input. Every rank runs COMMAND. Rank 0 writes the
outputs of the step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stepset.defaults import STARTUP_TIMEOUT
from stepset.errors import StepsetError
from stepset.run_status import Phase
from stepset.watch.present.failure_report import failure_text
from stepset_kfp.encoding import ENCODED_ARGUMENTS, INPUT_FLAG, decode
from stepset_kfp.job_inputs import YAML_FIELDS
from stepset_kfp.ranks.exchange import exchange_for
from stepset_kfp.step.executor_input import check_executor_input
from stepset_kfp.step.step_job import StepInputs, StepJob, read
from stepset_kfp.step.step_log import StepLog
from stepset_kfp.step.train import fail, run
from stepset_kfp.task_config import TASK_CONFIG

_DEFAULTS = {
    "backend": "auto",
    "target": "jobset",
    "namespace": "",
    "log_ranks": "0",
    "on_interrupt": "suspend",
    "on_orphan": "",
}
_LIMITS = {"admission_timeout": 0, "startup_timeout": STARTUP_TIMEOUT}


def main(arguments: Sequence[str]) -> None:
    """Runs the component in every rank. If the component cannot be started or fails, ends the step as failed."""
    separator = arguments.index("--")
    settings = json.loads(arguments[arguments.index("--settings") + 1])
    command = list(arguments[separator + 1 :])
    position = command.index(INPUT_FLAG) + 1
    try:
        check_executor_input()
        _run(settings, command, position, json.loads(command[position]))
    except StepsetError as error:
        fail(str(error), int(error.exit_code))


def _run(settings: Mapping[str, Any], command: list[str], position: int, executor_input: dict[str, Any]) -> None:
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    task = _task_config(values.pop(TASK_CONFIG, None))
    encoded = values.pop(ENCODED_ARGUMENTS, None) or {}
    values |= {name: decode(value, values) for name, value in encoded.items()}
    options = {**_DEFAULTS, **_LIMITS, **settings}
    exchange = exchange_for(options, task, executor_input)
    given = {**options, "task_config": task, "job": {}}
    for field in YAML_FIELDS:
        if field in given and not isinstance(given[field], str):
            given[field] = json.dumps(given[field])

    def read_inputs() -> StepInputs:
        payload = {
            "command": [*command[:position], {"executor_input": True}, *command[position + 1 :]],
            "executor_input": exchange.stage_inputs(executor_input),
        }
        return read({**given, "function": program(payload)}, Path())

    status = run(StepJob(read_inputs), given, StepLog()).status
    if status.phase is not Phase.SUCCEEDED:
        fail(failure_text(status), int(status.exit_code))
    exchange.fetch_outputs(executor_input)


def program(payload: Mapping[str, Any]) -> str:
    """Returns the text of the Python program that every rank runs with a payload."""
    text = files("stepset_kfp.ranks").joinpath("main.py").read_text(encoding="utf-8")
    return f"{text}\n\nif __name__ == '__main__':\n    start({json.dumps(payload)!r})\n"


def _task_config(given: Mapping[str, Any] | None) -> Any:
    """Converts the JSON of KFP's TaskConfig to an object with the same attributes, without importing kfp.

    backend/src/v2/driver/driver.go writes the JSON.
    """
    if not given:
        return None
    fields = ("affinity", "tolerations", "env", "volumes", "resources")
    return SimpleNamespace(
        **{field: given.get(field) for field in fields},
        node_selector=given.get("nodeSelector"),
        volume_mounts=given.get("volumeMounts"),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
