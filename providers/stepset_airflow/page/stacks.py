"""Reads the stacks of a task's running ranks in the API server, for the page of the run.

The API server connects to the cluster with the connection of the task. A local run is found if the API server runs on
the machine of the worker, as the same user. Everything that a task stores may be forged. Therefore the run must have
the labels of the task instance, and a kubeconfig that the task names is not read: it could start programs in the API
server.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.html.escaped import escaped
from stepset.html.flame_graph import stacks_page
from stepset.watch.present.stacks_text import time_words
from stepset_airflow.hooks.cluster import ClusterAccess, connect
from stepset_airflow.identity import labels_of_identity
from stepset_airflow.run_record import RunRecord

if TYPE_CHECKING:
    from stepset.backends.base import Backend

TIME_LIMIT = 30.0
"""The maximum number of seconds until the response."""
MOST_AT_ONCE = 4
"""The maximum number of runs whose stacks an API server process reads at the same time."""
LARGEST = 8 << 20
"""The maximum number of characters of the document."""
_LOCAL = "local"


class Collections:
    """The collections of stacks that run in this process: at most one for each run, and `MOST_AT_ONCE` in total.

    Args:
        time_limit: the maximum number of seconds until a collection returns or fails.
    """

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        self._time_limit = time_limit
        self._lock = threading.Lock()
        self._runs: set[Hashable] = set()

    def read(self, run: Hashable, document: Callable[[], str]) -> str:
        """Returns the result of `document`, which runs in a thread of its own.

        Args:
            run: identifies the run.
            document: a function that returns the document, or raises a StepsetError.

        Raises:
            StepsetError: the error of `document`. InfrastructureError if there are too many collections, or if the
                function needs more than the time limit.
        """
        with self._lock:
            if run in self._runs:
                raise InfrastructureError("the stacks of this run are already being read; try again")
            if len(self._runs) >= MOST_AT_ONCE:
                raise InfrastructureError("the stacks of too many runs are being read; try again")
            self._runs.add(run)
        answers: queue.SimpleQueue[str | StepsetError] = queue.SimpleQueue()

        def work() -> None:
            answer: str | StepsetError = InfrastructureError("an internal error; the log of the API server contains it")
            try:
                answer = document()
            except StepsetError as error:
                answer = error
            finally:
                with self._lock:
                    self._runs.discard(run)
                answers.put(answer)

        threading.Thread(target=work, daemon=True).start()
        try:
            answer = answers.get(timeout=self._time_limit)
        except queue.Empty:
            raise InfrastructureError(f"the ranks have not answered within {self._time_limit:g} s") from None
        if isinstance(answer, StepsetError):
            raise answer
        return answer


@dataclass(frozen=True)
class RunOfTask:
    """The run of a task instance.

    Args:
        name: the name of the run.
        labels: the labels that the run has if it belongs to the task instance.
        namespace: the namespace of the run. Empty for a local run.
        access: how the cluster is reached. None for a local run.
    """

    name: str
    labels: Mapping[str, str]
    namespace: str = ""
    access: ClusterAccess | None = None

    def document(self) -> str:
        """Returns the HTML document with the stacks of all running ranks.

        Raises:
            StepsetError: the stacks cannot be read, or the run does not belong to the task instance.
        """
        backend = self._backend()
        if not self.labels.items() <= backend.status(self.name).labels.items():
            raise BadInputError(f"run {self.name} does not have the labels of this task")
        stacks = backend.stacks(self.name)
        page = stacks_page(stacks, time_words(stacks))
        if len(page) > LARGEST:
            raise InfrastructureError(f"the stacks of {len(stacks.ranks)} ranks are too large for this page")
        return page

    def _backend(self) -> Backend:
        if self.access is None:
            from stepset.backends import backend_of

            return backend_of(_LOCAL, interface="airflow")
        from stepset.backends.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(connect(self.access), namespace=self.namespace, interface="airflow")


def run_of_task(task: Mapping[str, Any], training: Mapping[str, Any] | None, record: object) -> RunOfTask:
    """Returns the run of a task instance.

    Args:
        task: the columns that identify the task instance (`task_columns.identity`).
        training: the document of the page. None if there is none.
        record: the stored `RunRecord` as plain data. None if there is none, as for a local run.

    Raises:
        BadInputError: the task has no run, or its cluster can only be reached from its worker.
    """
    labels = labels_of_identity(task)
    if training is None:
        raise BadInputError("this task has no run")
    if training["backend"] == _LOCAL:
        return RunOfTask(training["run"], labels)
    try:
        known = RunRecord.from_dict(record)
    except ValueError:
        raise BadInputError("this task has no record of its run") from None
    access = known.follow.access
    if access.config_file is not None:
        raise BadInputError(
            "config_file: the API server does not read the kubeconfig of a task; use kubernetes_conn_id"
        )
    return RunOfTask(known.name, labels, known.namespace, replace(access, namespace=known.namespace))


def message_page(text: str, run: str = "") -> str:
    """Returns an HTML document that states why there are no stacks, and the command that reads these elsewhere."""
    command = f"<p>On a machine that reaches the ranks: <code>stepset stacks {escaped(run)}</code></p>" if run else ""
    style = "body { font: 14px/1.5 system-ui, sans-serif; margin: 1rem; } :root { color-scheme: light dark; }"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Stacks</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<p>{escaped(text)}</p>{command}\n</body>\n</html>\n"
    )
