"""The script of an MPI job's command, where it can be read, must do what its name indicates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.sources import read_sources
from stepset.spec import parse_job

MPIRUN, PROGRAM = "#!/bin/bash\nexec mpirun ./a.out\n", "#!/bin/bash\n# without mpirun\nexec ./a.out\n"


def read(directory: Path, command: list[str], framework: Any = "mpi", **fields: Any) -> None:
    read_sources(parse_job({"name": "job", "framework": framework, "command": command, **fields}), directory)


@pytest.mark.parametrize("command", [["./run.sh"], ["bash", "run.sh"], ["env", "A=1", "./run.sh"]])
class TestAShellScript:
    def test_that_starts_mpirun_is_accepted(self, tmp_path: Path, command: list[str]) -> None:
        (tmp_path / "run.sh").write_text(MPIRUN)
        read(tmp_path, command)

    def test_that_does_not_is_refused_with_both_remedies(self, tmp_path: Path, command: list[str]) -> None:
        (tmp_path / "run.sh").write_text(PROGRAM)
        with pytest.raises(BadInputError, match=r"^command: the script \S*run.sh starts no mpirun.*launch: command"):
            read(tmp_path, command)
        read(tmp_path, ["mpirun", *command])
        read(tmp_path, command, {"kind": "mpi", "launch": "command"})
        read(tmp_path, command, {"kind": "mpi", "launch": "mpirun"})

    def test_that_is_in_the_image_is_not_checked(self, tmp_path: Path, command: list[str]) -> None:
        read(tmp_path, command)


def test_a_script_of_code_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "run.sh").write_text(PROGRAM)
    with pytest.raises(BadInputError, match="starts no mpirun"):
        read(tmp_path, ["./run.sh"], code="src")


def test_a_program_that_is_a_shell_script_with_mpirun_is_refused(tmp_path: Path) -> None:
    (tmp_path / "solver").write_text(MPIRUN)
    with pytest.raises(BadInputError, match=r"the script ./solver starts mpirun itself.*launch: command"):
        read(tmp_path, ["./solver"])
    read(tmp_path, ["./solver"], {"kind": "mpi", "launch": "command"})
    (tmp_path / "solver").write_text("#!/usr/bin/env python3\n'''Start this program with mpirun.'''\n")
    read(tmp_path, ["./solver"])
    (tmp_path / "solver").write_bytes(b"\x7fELF\0mpirun")
    read(tmp_path, ["./solver"])


def test_commands_of_other_frameworks_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(PROGRAM)
    read(tmp_path, ["./run.sh"], "plain")
