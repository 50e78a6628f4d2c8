"""The first hour of a DAG author: the README's DAG, a training that fails, and a wrong argument."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.first_hour.programs import PIPE, SCREENS, Screen, run_program
from tests.first_hour.readme import code_after, write_job

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new Airflow home with the README's DAG."""
    directory = tmp_path_factory.mktemp("airflow user")
    write_job(directory / "dags")
    (directory / "dags" / "mine.py").write_text(code_after("From [Airflow]"), "utf-8")
    done = airflow(directory, "db", "migrate")
    assert done.returncode == 0, done.stdout
    return directory


def airflow(home: Path, *words: str, screen: Screen = PIPE) -> subprocess.CompletedProcess[str]:
    return run_program(
        home, "airflow", *words, screen=screen, AIRFLOW_HOME=str(home), AIRFLOW__CORE__LOAD_EXAMPLES="false"
    )


def messages(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The messages of the task's log, without the columns that Airflow adds."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    return [re.sub(r"^\S+Z \[\w+ *\] | *\[[\w.]+\] loc=.*", "", line) for line in plain.splitlines()]


def test_the_dag_of_the_readme_trains(home: Path) -> None:
    done = airflow(home, "dags", "test", "retrain")
    assert done.returncode == 0, done.stdout
    found = messages(done)
    assert "[rank 0] training with ['--epochs', '3']" in found
    assert any(re.fullmatch(r"run train-\w+-1 succeeded in .*s", line) for line in found), done.stdout


@pytest.mark.parametrize("screen", SCREENS)
def test_a_task_that_fails_ends_its_log_with_the_diagnosis(home: Path, screen: Screen) -> None:
    done = airflow(home, "dags", "test", "retrain", "-c", json.dumps({"epochs": "fail"}), screen=screen)
    assert done.returncode != 0
    found = messages(done)
    what = ": UserError: rank 3 (pod node-1) exited with code 1: ValueError: bad batch"
    assert any(line.startswith("run train-") and line.endswith(what) for line in found), done.stdout
    for line in (
        "  first failure rank 3, pod node-1, on node 1, exit code 1",
        "  error         ValueError: bad batch",
        "  advice        Look at the error and the last lines of that rank, and fix the training code.",
    ):
        assert line in found, done.stdout
    assert ("\x1b[" in done.stdout) == (screen.columns is not None and "NO_COLOR" not in screen.variables)


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("num_node=2", "num_node: unknown parameter; did you mean 'num_nodes'?"),
        ("env_vars={'A': 'b'}", "env_vars:"),
    ],
)
def test_a_wrong_argument_is_an_import_error_that_names_the_right_one(home: Path, argument: str, error: str) -> None:
    (home / "broken").mkdir(exist_ok=True)
    text = (home / "dags" / "mine.py").read_text("utf-8")
    (home / "broken" / "mine.py").write_text(text.replace('task_id="train",', f'task_id="train", {argument},'), "utf-8")
    done = run_program(
        home, "airflow", "dags", "list-import-errors", "-o", "json", "--local",
        AIRFLOW_HOME=str(home), AIRFLOW__CORE__LOAD_EXAMPLES="false", AIRFLOW__CORE__DAGS_FOLDER=str(home / "broken"),
    )  # fmt: skip
    assert f"DAG 'retrain', task 'train': {error}" in done.stdout
