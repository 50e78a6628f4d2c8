"""Fixtures for real training on this machine: run directories, the MPI programs, the compiled C example."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stepset

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.frameworks)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the runs of one test."""
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def program(name: str) -> str:
    """The path of a Debian package's program; the test is skipped without it, unless everything is required."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(f"{name} is not installed; run `make system` as root")
        pytest.skip(f"{name} is not installed (`make system` as root installs it)")
    return found


@pytest.fixture
def mpich_from_pypi() -> Path:
    """The directory with MPICH from PyPI; the test is skipped without it, unless everything is required."""
    directory = EXAMPLES.parent / ".venvs" / "mpich"
    if not (directory / ".done").exists():
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail("MPICH from PyPI is not installed; run `make setup-mpi`")
        pytest.skip("MPICH from PyPI is not installed (`make setup-mpi` installs it)")
    return directory


@pytest.fixture
def mpich_program(tmp_path: Path) -> Path:
    """examples/mpi/allreduce.c built with MPICH's compiler."""
    built = tmp_path / "allreduce"
    subprocess.run([program("mpicc.mpich"), EXAMPLES / "mpi" / "allreduce.c", "-o", built], check=True)
    return built


def train(script: str | None, framework: Any, nodes: int = 2, procs: int | str = 2, **fields: Any) -> dict[str, Any]:
    """Runs one of the examples; returns its result."""
    job = {
        "framework": framework,
        "num_nodes": nodes,
        "procs_per_node": procs,
        **({} if script is None else {"script": script}),
        "deadline": "5m",
        **fields,
    }
    try:
        status = stepset.run(job, base_dir=EXAMPLES)
    except stepset.TrainingFailedError as error:
        if (status := error.status) and status.failure:
            error.add_note("\n".join(status.failure.tail))  # pytest prints it
        raise
    assert isinstance(status.result, dict)
    return dict(status.result)
