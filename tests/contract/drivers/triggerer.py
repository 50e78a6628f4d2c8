"""Triggers in a real triggerer: `python -m tests.contract.drivers.triggerer`.

Imports Airflow once and forks a triggerer for each request, a line of JSON on standard input. The triggerer creates a
run, as a worker would, and Airflow's own TriggerRunner runs one DistributedTrainTrigger for it. Only the supervisor is
not Airflow's: `Supervisor` replaces the process that uses the database, and answers from memory.

Log lines are sent through a socket as JSON, as between a triggerer's processes; the last one is
{"event": "contract: end", "payload": {...}}.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HOME = tempfile.mkdtemp(prefix="stepset-contract-airflow-")
os.environ.update(AIRFLOW_HOME=HOME, AIRFLOW__CORE__LOAD_EXAMPLES="False", AIRFLOW__CORE__UNIT_TEST_MODE="False")

import structlog  # noqa: E402  # Airflow's settings come first
from airflow.executors.workloads import RunTrigger  # noqa: E402
from airflow.executors.workloads.task import TaskInstanceDTO  # noqa: E402
from airflow.jobs.triggerer_job_runner import TriggerRunner, messages  # noqa: E402
from airflow.models.trigger import Trigger  # noqa: E402
from airflow.sdk.execution_time import comms, task_runner  # noqa: E402
from airflow.sdk.log import configure_logging  # noqa: E402

from stepset_airflow.triggerer.imports import MODULES  # noqa: E402

END = "contract: end"


class Supervisor:
    """Answers the requests of a triggerer to its supervisor.

    Args:
        workload: the trigger to run.
    """

    def __init__(self, workload: RunTrigger) -> None:
        self._waiting = [workload]
        self._kept: dict[str, Any] = {}
        self.ended: list[Any] = []
        self._reader_task = asyncio.create_task(asyncio.Event().wait())

    async def asend(self, message: Any) -> Any:
        """Answers a message of the triggerer or of a trigger."""
        if isinstance(message, messages.TriggerStateChanges):
            self.ended += [entry.event.payload for entry in message.events or ()]
            self.ended += [{"error": f"the trigger failed: {failure}"} for failure in message.failures or ()]
            made, self._waiting = self._waiting, []
            return messages.TriggerStateSync(to_create=made, to_cancel=set())
        if isinstance(message, comms.SetXCom):
            self._kept[message.key] = message.value
        elif isinstance(message, comms.DeleteXCom):
            self._kept.pop(message.key, None)
        elif isinstance(message, comms.GetXCom):
            return comms.XComResult(key=message.key, value=self._kept.get(message.key))
        return None

    def send(self, message: Any) -> Any:
        """Raises AssertionError, because a trigger must not block the event loop."""
        raise AssertionError(f"a synchronous {type(message).__name__} in the event loop")


class Runner(TriggerRunner):
    """Airflow's TriggerRunner, which ends with its only trigger."""

    def __init__(self, workload: RunTrigger) -> None:
        super().__init__()
        self._workload = workload
        self.supervisor: Supervisor | None = None

    async def init_comms(self) -> None:
        self.supervisor = Supervisor(self._workload)
        self.comms_decoder = self.supervisor  # type: ignore[assignment]  # it has the methods that are used
        task_runner.SUPERVISOR_COMMS = self.supervisor  # type: ignore[assignment]  # likewise

    async def sync_state_to_supervisor(self, finished_ids: list[int]) -> None:
        await super().sync_state_to_supervisor(finished_ids)
        if self.supervisor is not None and self.supervisor.ended:
            self._handle_signal(signal.SIGTERM, None)


def follow(request: dict[str, Any]) -> None:
    """Creates the run of a request and follows it with a trigger in a triggerer; logs to the socket of the request."""
    from stepset.backends.base import ClusterOptions, RunRequest
    from stepset.backends.kubernetes import kubernetes_backend
    from stepset.sources import read_sources
    from stepset.spec import parse_job

    channel = socket.socket(socket.AF_UNIX)
    channel.connect(request["socket"])
    with channel, channel.makefile("wb", buffering=0) as out:
        configure_logging(json_output=True, log_level="INFO", output=out, cache_logger_on_first_use=False)
        job = parse_job(request["job"])
        backend = kubernetes_backend(ClusterOptions(**request["made_by"]))
        sources = read_sources(job, Path(request["directory"]))
        backend.submit(RunRequest(job, sources, name=request["name"], owner="contract"))
        workload = backend.workload(request["name"])
        assert workload is not None
        access = {"kubernetes_conn_id": None, "config_file": request["kubeconfig"], "namespace": request["namespace"]}
        fields = {
            "access": {**access, "in_cluster": None, "cluster_context": None},
            "workload": _reference(workload, request["target"]),
            **request["fields"],
        }
        runner = Runner(_workload(fields))
        runner.run()
        assert runner.supervisor is not None
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        structlog.get_logger("contract").info(END, payload=runner.supervisor.ended[-1], memory_mb=memory)


def _reference(workload: Mapping[str, Any], target: str) -> dict[str, Any]:
    """The part of a run's workload that DistributedTrainTrigger gets."""
    about = {key: workload["metadata"].get(key) or {} for key in ("name", "uid", "labels", "annotations")}
    return {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "target": target, "metadata": about}


def _workload(fields: dict[str, Any]) -> RunTrigger:
    about = {"dag_id": "digits", "run_id": "manual__1", "task_id": "train", "map_index": -1, "try_number": 1}
    ids = {"id": uuid.uuid4(), "dag_version_id": uuid.uuid4()}
    ti = TaskInstanceDTO(**about, **ids, pool_slots=1, priority_weight=1, queue="default")
    path = "stepset_airflow.triggers.distributed_train.DistributedTrainTrigger"
    return RunTrigger(id=1, classpath=path, encrypted_kwargs=Trigger.encrypt_kwargs(fields), ti=ti)


def main() -> None:
    """Forks a triggerer for each request, until standard input is closed."""
    for module in MODULES:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    print("ready", flush=True)
    for line in sys.stdin:
        if os.fork() == 0:
            code = 1
            try:
                request = json.loads(line)
                os.environ.update(request["environment"])
                log = os.open(request["stderr"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                follow(request)
                code = 0
            except BaseException:  # noqa: BLE001  # the child must not continue with the parent's code
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)


if __name__ == "__main__":
    main()
