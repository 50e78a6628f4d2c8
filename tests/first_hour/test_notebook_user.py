"""The first hour in a notebook: the README's cell, a run in the background, and a training that fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.first_hour.programs import SCREENS, run_program
from tests.first_hour.readme import code_after, write_job

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(not Path(sys.executable).with_name("jupyter-execute").exists(), reason="needs Jupyter"),
]

BACKGROUND = "print(handle.wait().phase, len(handle.status().ranks))"
FAILS = 'stepset.run("digits.yaml", args=["fail"])'
TYPING_ERROR = 'stepset.run("digits.yaml", num_node=2)'
LOGS = "stepset.logs(handle.name, tail=2)"
LISTED = 'stepset.list_runs(reason="usererror")'
DELETED = 'len(stepset.delete(job="train"))'


@pytest.fixture(scope="module", params=SCREENS)
def cells(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[Any]:
    """The cells of the notebook after Jupyter has executed it, started in a terminal or with a pipe.

    The notebook does not depend on either.
    """
    place = tmp_path_factory.mktemp("notebook user")
    write_job(place)
    sources = (
        code_after("From Python").replace(
            "num_nodes=2", 'num_nodes=2, framework={"kind": "torch", "launcher": "none"}'
        ),
        BACKGROUND,
        FAILS,
        TYPING_ERROR,
        LOGS,
        LISTED,
        DELETED,
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(notebook, place / "first.ipynb")
    done = run_program(place, "jupyter-execute", "--inplace", "--allow-errors", "first.ipynb", screen=request.param)
    assert done.returncode == 0, done.stdout
    return list(nbformat.read(place / "first.ipynb", as_version=4).cells)


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def html(cell: Any) -> list[str]:
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def test_the_cell_of_the_readme_shows_lines_and_a_table_and_prints_the_result(cells: list[Any]) -> None:
    assert "[rank 3] training with ['--epochs', '3']" in printed(cells[0])
    assert "{'world_size': 4}" in printed(cells[0])
    assert "\x1b" not in printed(cells[0])
    (table,) = html(cells[0])
    assert all(f"rank {rank}" in table for rank in range(4))


def test_the_run_in_the_background_is_waited_for(cells: list[Any]) -> None:
    assert printed(cells[1]) == "Succeeded 2\n"


def test_a_run_that_fails_raises_one_error_with_the_diagnosis(cells: list[Any]) -> None:
    (error,) = [output for output in cells[2].outputs if output.output_type == "error"]
    assert error.ename.endswith("TrainingFailedError")
    assert "UserError: rank 3 (pod node-1) exited with code 1: ValueError: bad batch" in error.evalue
    assert any("ValueError: bad batch" in table for table in html(cells[2]))
    assert error.traceback == [f"TrainingFailedError: {error.evalue}"]


def test_a_wrong_argument_is_one_line(cells: list[Any]) -> None:
    (error,) = cells[3].outputs
    assert error.traceback == ["BadInputError: unknown argument 'num_node'; did you mean 'num_nodes'?"]


def test_lines_and_runs_are_shown_as_lines_and_a_table(cells: list[Any]) -> None:
    (lines,), (runs,) = cells[4].outputs, cells[5].outputs
    assert len(lines.data["text/plain"].splitlines()) == 2
    assert "[rank " in lines.data["text/html"]
    header, row = runs.data["text/plain"].splitlines()
    assert header.split()[:3] == ["NAME", "PHASE", "REASON"]
    assert row.split()[1:3] == ["Failed", "UserError"]
    assert '<td class="bad">Failed</td>' in runs.data["text/html"]


def test_the_runs_of_a_job_are_deleted_in_one_call(cells: list[Any]) -> None:
    (count,) = cells[6].outputs
    assert count.output_type == "execute_result", count
    assert count.data["text/plain"] == "3"
