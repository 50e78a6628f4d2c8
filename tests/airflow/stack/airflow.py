"""A complete Airflow: PostgreSQL, API server, scheduler with its LocalExecutor, DAG processor and triggerers.

conftest.py starts it once for all tests of this directory. Its settings shorten intervals: it searches every second for
dead processes whose work others must take over; the default is every half minute.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.airflow.stack import hostname
from tests.airflow.stack.component import Component
from tests.airflow.stack.postgres import Postgres
from tests.airflow.stack.rest import Rest, eventually

ROOT = Path(__file__).resolve().parents[3]
AIRFLOW = Path(sys.executable).parent / "airflow"
DEAD_AFTER = 10
"""Seconds without a heartbeat after which a triggerer or a task counts as dead; Airflow's defaults are 30 and 300. On
two busy cores the start of four workers takes five seconds."""

_BUNDLES = [{"name": "tests", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"}]


class Airflow:
    """A running Airflow.

    Args:
        home: its directory, which nothing else uses.

    Attributes:
        rest: the client of its API.
        triggerers: all triggerers that were started, oldest first.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.dags = home, home / "dags"
        self.database = Postgres(home / "postgres")
        self.port = _free_port()
        self.env = self._environment()
        self.rest = Rest(f"http://127.0.0.1:{self.port}", home / "logs")
        self.triggerers: list[Component] = []
        self._parts: list[Component] = []

    def start(self) -> None:
        """Starts all components and waits until the API server answers."""
        self.dags.mkdir()
        self.database.start()
        migrated = subprocess.run([AIRFLOW, "db", "migrate"], env=self.env, capture_output=True, text=True)
        assert migrated.returncode == 0, migrated.stderr[-3000:]
        self.api_server = self._component("api-server", "--port", str(self.port), "--workers", "1")
        self.dag_processor = self._component("dag-processor")
        self.scheduler = self._component("scheduler", "--skip-serve-logs")
        self.have_triggerers(1)
        dead: list[Component] = []

        def known() -> bool:
            dead[:] = [part for part in self._parts if not part.alive]
            return bool(dead) or self.rest.ready()

        assert eventually(known), self.api_server.log.read_text()[-3000:]
        assert not dead, dead[0].log.read_text()[-3000:]

    def wait(self) -> None:
        """Waits until all components have ended; process_supervisor.py kills them."""
        self.database.wait()
        for part in self._parts:
            part.wait()

    def have_triggerers(self, count: int) -> None:
        """Starts or stops triggerers until `count` of them run."""
        for each in [each for each in self.triggerers if each.alive][count:]:
            each.stop()
        while sum(each.alive for each in self.triggerers) < count:
            name = f"triggerer-{len(self.triggerers)}"
            self.triggerers.append(self._component("triggerer", "--skip-serve-logs", name=name))

    def job(self, triggerer: Component) -> int | None:
        """The id of a triggerer's job; None before Airflow has registered it."""
        found = self.rest.request("GET", "/jobs", job_type="TriggererJob")["jobs"]
        return next((each["id"] for each in found if each["hostname"] == triggerer.name), None)

    def write_dag(self, dag_id: str, text: str, script: str = "") -> None:
        """Writes a DAG file and its train.py, and waits until Airflow has parsed the file.

        Args:
            dag_id: the DAG's id.
            text: the DAG file.
            script: the file `<dag_id>/train.py`.
        """
        (self.dags / dag_id).mkdir()
        (self.dags / dag_id / "train.py").write_text(script)
        new = self.home / f"{dag_id}.new"
        new.write_text(text)
        new.rename(self.dags / f"{dag_id}.py")
        assert eventually(lambda: self.rest.has_parsed(dag_id)), self.dag_processor.log.read_text()[-3000:]

    def remove_dag(self, dag_id: str) -> None:
        """Deletes a DAG file and pauses the DAG, if Airflow still has it."""
        self.rest.request("PATCH", f"/dags/{dag_id}", {"is_paused": True}, missing={})
        (self.dags / f"{dag_id}.py").unlink()

    def _component(self, *words: str, name: str = "") -> Component:
        name = name or words[0]
        env = {**self.env, hostname.VARIABLE: name}
        self._parts.append(Component(name, [str(AIRFLOW), *words], env, self.home / f"{name}.log"))
        return self._parts[-1]

    def _environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "STEPSET_"))}
        fernet = base64.urlsafe_b64encode(os.urandom(32)).decode()
        return {
            **mine,
            "AIRFLOW_HOME": str(self.home),
            "SPT_NOENV": "1",  # process titles must not overwrite what process_supervisor.py reads
            "PYTHONPATH": str(ROOT),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": f"{hostname.__name__}.{hostname.hostname.__name__}",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__FERNET_KEY": fernet,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database.address,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": self.database.address,
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
                [{**each, "kwargs": {"path": str(self.dags)}} for each in _BUNDLES]
            ),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "2",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # for a file that has not changed
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(DEAD_AFTER),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": str(DEAD_AFTER),
            "AIRFLOW__TRIGGERER__RUNNER_HEALTH_CHECK_THRESHOLD": str(DEAD_AFTER),
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }  # fmt: skip


@contextmanager
def running_airflow() -> Iterator[Airflow]:
    """Starts an Airflow and kills all its processes after the block, even if this process is killed."""
    home = Path(tempfile.mkdtemp(prefix="airflow-"))
    home.chmod(0o755)
    words = [sys.executable, "-m", "tests.airflow.stack.process_supervisor", str(home)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True) as supervisor:
        airflow = Airflow(home)
        try:
            airflow.start()
            yield airflow
        finally:
            airflow.rest.close()
            assert supervisor.stdin
            supervisor.stdin.close()
            assert supervisor.wait(120) == 0
            airflow.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
