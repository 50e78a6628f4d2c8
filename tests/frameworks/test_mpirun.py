"""The position of the program in an mpirun command, if it can be determined."""

from __future__ import annotations

import pytest

from stepset.frameworks.mpirun import split_mpirun


@pytest.mark.parametrize(
    ("launcher", "program"),
    [
        ("mpirun", "./a.out -n 3"),
        ("/opt/mpi/bin/mpirun", "./a.out"),
        ("mpirun.openmpi", "python3 -u train.py --hostfile x"),
        ("mpiexec.hydra", "a"),
        ("mpirun -np 4", "./a.out -v"),
        ("mpirun -n 4 --bind-to none --map-by slot", "./a.out"),
        ("mpirun -x A -x B=1 -mca btl tcp,self --mca pml ob1", "./a.out"),
        ("mpirun --allow-run-as-root --oversubscribe --tag-output", "./a.out"),
        ("mpirun -H a:2,b:2 --hostfile /etc/mpi/hostfile", "./a.out"),
        ("mpirun --prefix /opt/mpi -wdir /work", "./a.out"),
        ("mpirun --output=tag --bind-to=none", "./a.out"),
        ("mpiexec -ppn 2 -genv A 1 -genvlist B,C -iface eth0", "./a.out"),
        ("mpiexec -genv A=1 -env B 2 -env C=", "python3 train.py"),
        ("mpirun -perhost 2 -l -prepend-rank", "./a.out"),
        ("orterun -np 2", "./a.out"),
        ("prterun --np 2", "./a.out"),
    ],
)
def test_the_program_is_found_behind_known_options(launcher: str, program: str) -> None:
    words = [*launcher.split(), *program.split()]
    assert split_mpirun(words) == len(launcher.split())


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python3 train.py",
        "bash -c mpirun",
        "mpirun",  # no program: it is among the args, or missing
        "mpirun -np",
        "mpirun -np 4",
        "mpirun --unknown 3 ./a.out",
        "mpirun -np 2 ./a.out : -np 2 ./b.out",
        "srun mpirun ./a.out",
    ],
)
def test_the_position_is_unknown_for_other_commands(command: str) -> None:
    assert split_mpirun(command.split()) is None
