"""Fixtures of the Airflow tests: a database, DAG files written by a test, and running them."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.airflow.harness import DAGS, HOME, DagRun, lock_file, run_to_end
from tests.airflow.workers import StartWorker, forked_workers
from tests.cluster.testbed.build import cache_root

# These tests import only the provider's own modules.
_WITHOUT_AIRFLOW = (
    "test_identity.py",
    "test_job_fields.py",
    "test_exit_policy.py",
    "test_task_log.py",
    "test_record.py",
    "test_try_reason.py",
    "test_log_sources.py",
    "test_curve.py",
    "test_document.py",
    "test_writer.py",
)

WriteDag = Callable[..., Path]
RunDag = Callable[..., DagRun]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores files that import Airflow, which takes seconds, if the marker expression deselects their tests.

    Ignores the tests of loops with an Airflow that has none.
    """
    if collection_path.name == "test_loops.py":
        from tests.airflow.airflow_version import AIRFLOW_3_4  # Airflow may be missing in the environment of KFP

        if not AIRFLOW_3_4:
            return True
    needs_airflow = collection_path.name.startswith("test_") and collection_path.name not in _WITHOUT_AIRFLOW
    return True if needs_airflow and "not airflow" in config.option.markexpr else None


@pytest.fixture(scope="session", autouse=True)
def _remove_home() -> Iterator[None]:
    yield
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Creates Airflow's database."""
    create_database()


@cache
def create_database() -> None:
    """Copies a database that is cached for each version of the lock file: migrating is slow.

    Once for each process: tests/reported has these fixtures, too, and a second copy would replace a database in use.
    """
    versions = hashlib.sha256(lock_file().read_bytes()).hexdigest()[:12]
    database, kept = HOME / "airflow.db", cache_root().with_name("airflow") / f"{versions}.db"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            command = [sys.executable, "-m", "airflow", "db", "migrate"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout.decode()[-3000:]
            shutil.copy(database, kept.with_suffix(".new"))
            kept.with_suffix(".new").rename(kept)
    shutil.copy(kept, database)


@pytest.fixture
def stepset_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which local runs keep their state."""
    home = tmp_path / "stepset"
    monkeypatch.setenv("STEPSET_HOME", str(home))
    return home


@pytest.fixture
def run_dag(airflow_db: None, stepset_home: Path) -> RunDag:
    """`run_dag(path)`: runs a DAG file's DAG to its end."""
    return run_to_end


@pytest.fixture(scope="session")
def start_worker(airflow_db: None) -> Iterator[StartWorker]:
    """`with start_worker(path) as worker:`: runs a DAG file in a separate process and kills it after the block."""
    with forked_workers() as start:
        yield start


@pytest.fixture
def write_dag(request: pytest.FixtureRequest) -> Iterator[WriteDag]:
    """`write_dag('DistributedTrainOperator(task_id=...)', script="...")`: writes a DAG file and train.py.

    The DAG is named after the test.
    """
    with dag_folder(request.node.name.translate(str.maketrans("[]/ ", "____"))) as write:
        yield write


@contextmanager
def dag_folder(name: str) -> Iterator[WriteDag]:
    """Creates a folder for DAG files and deletes it after the block; yields the function of the fixture `write_dag`.

    Args:
        name: the name of the folder and of its DAG.
    """
    folder = DAGS / name
    folder.mkdir()

    def write(tasks: str, script: str = "", imports: str = "", dag: str = "") -> Path:
        (folder / "train.py").write_text(textwrap.dedent(script))
        path = folder / "dag_file.py"
        path.write_text(
            "from airflow.sdk import DAG, Asset, task\n"
            "from stepset_airflow import DistributedTrainOperator\n"
            f"{textwrap.dedent(imports)}\n"
            f"with DAG({folder.name!r}, schedule=None, {dag}) as dag:\n"
            f"{textwrap.indent(textwrap.dedent(tasks).strip(), '    ')}\n\n"
            "if __name__ == '__main__':\n"
            "    print('ended as', dag.test().state)\n"
        )
        return path

    yield write
    shutil.rmtree(folder)
