"""Whether a command starts MPI's ranks itself."""

from __future__ import annotations

import shlex

import pytest

from stepset.plan.starters import launcher_in, starts_ranks


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("mpirun ./a.out", "mpirun"),
        ("/usr/lib64/openmpi/bin/mpirun -n 4 ./a.out", "mpirun"),
        ("mpirun.openmpi ./a.out", "mpirun.openmpi"),
        ("mpirun_rsh ./a.out", "mpirun_rsh"),
        ("mpiexec.hydra ./a.out", "mpiexec.hydra"),
        ("orterun ./a.out", "orterun"),
        ("prterun ./a.out", "prterun"),
        ("srun ./a.out", "srun"),
        ("horovodrun -np 4 python3 train.py", "horovodrun"),
        ("deepspeed --launcher openmpi train.py", "deepspeed"),
        ("env OMP_NUM_THREADS=1 mpirun ./a.out", "mpirun"),
        ("/usr/bin/env -u A mpiexec ./a.out", "mpiexec"),
        ("nice -n 5 timeout 60 mpirun ./a.out", "mpirun"),
        ("conda run -n mpi mpirun ./a.out", "mpirun"),
        ("nsys profile -o report mpirun ./a.out", "mpirun"),
        ("bash -c 'mpirun ./a.out'", "mpirun"),
        ("bash -lc 'module load openmpi && exec mpirun ./a.out'", "mpirun"),
        ("bash -euo pipefail -c 'cd /work; /opt/mpi/bin/mpiexec.hydra ./a.out | tee log'", "mpiexec.hydra"),
        ("sh -c '$MPIRUN -n 4 ./a.out'", "MPIRUN"),
        ("sh -c '${MPIEXEC} ./a.out'", "MPIEXEC"),
        ("env A=1 sh -c 'mpirun ./a.out'", "mpirun"),
    ],
)
def test_a_command_that_names_a_launcher_starts_them(command: str, launcher: str) -> None:
    assert starts_ranks(shlex.split(command)) == ("launcher", launcher)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("./run.sh", "./run.sh"),
        ("/opt/run.bash --fast", "/opt/run.bash"),
        ("bash run", "run"),
        ("bash -eux run.sh", "run.sh"),
        ("bash -o pipefail -- run.sh", "run.sh"),
        ("/bin/sh run.sh", "run.sh"),
        ("env A=1 bash run.sh", "run.sh"),
        ("bash -c 'cd /work && ./run.sh 4'", "./run.sh"),
    ],
)
def test_a_shell_script_starts_them(command: str, script: str) -> None:
    assert starts_ranks(shlex.split(command)) == ("script", script)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "./a.out",
        "./a.out --launcher mpirun",
        "python3 train.py run.sh",
        "env OMP_NUM_THREADS=1 ./a.out",
        "bash -c ./a.out",
        "bash -c 'source /opt/setvars.sh && ./a.out --use-mpirun'",
        "bash -c '. ./env.sh; ./a.out  # not mpirun'",
        "bash",
    ],
)
def test_any_other_command_is_the_program_of_one_rank(command: str) -> None:
    assert starts_ranks(shlex.split(command)) is None


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("#!/bin/bash\nset -e\nexec mpirun -n 4 ./a.out\n", "mpirun"),
        ('"${MPIEXEC}" ./a.out\n', "MPIEXEC"),
        ("x=1  # mpirun ./a.out\n#mpirun\n./a.out\n", None),
        ("./with_mpirun ./no-mpirun\n", None),
        ("", None),
    ],
)
def test_a_script_starts_them_with_the_launcher_that_it_names_outside_comments(text: str, launcher: str | None) -> None:
    assert launcher_in(text) == launcher
