"""Runs mpi4py's own test suite with plain mpirun and with `stepset run`, and prints both times and their ratio.

    .venvs/airflow/bin/python tools/mpi4py_suite.py DIRECTORY [--bin BIN] [--exclude PATTERN] [--rounds N]

DIRECTORY is an unpacked source distribution: pip download --no-binary=mpi4py --no-deps mpi4py==4.1.2. Its tests are run
by the mpi4py of this Python. docs/testing/README.md contains the results.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RANKS = 4
_SUMMARY = re.compile(r"Ran (\d+) tests in [\d.]+s\s+(OK|FAILED)")


@dataclass(frozen=True)
class Outcome:
    """One run of the suite: its time in seconds, its exit code, and the number of tests that rank 0 reported."""

    seconds: float
    code: int
    tests: int


def main() -> int:
    """Prints a row for each round; returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="mpi4py's unpacked source distribution")
    parser.add_argument("--bin", type=Path, help="directory of mpirun; default: PATH is not changed")
    parser.add_argument("--library", type=Path, help="MPI's library (MPI4PY_LIBMPI); default: the system's")
    parser.add_argument("--implementation", default="openmpi", help="openmpi (default) or mpich")
    parser.add_argument("--exclude", action="append", default=[], help="a module of tests to leave out; repeatable")
    parser.add_argument("--rounds", type=int, default=1, help="how often to run both; default: 1")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of one run; default: 1800")
    given = parser.parse_args()
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if given.bin:
        environment["PATH"] = f"{given.bin.absolute()}{os.pathsep}{environment['PATH']}"
    if given.library:
        environment["MPI4PY_LIBMPI"] = str(given.library.absolute())
    suite = [str(given.directory.absolute() / "test" / "main.py"), *(f"--exclude={name}" for name in given.exclude)]
    oversubscribe = ["--oversubscribe"] if given.implementation == "openmpi" else []
    plain = ["mpirun", *oversubscribe, "-n", str(RANKS), sys.executable, *suite]
    framework = f"framework.implementation={given.implementation}"
    ours = [str(Path(sys.executable).with_name("stepset")), "run", "--framework", "mpi", "-p", str(RANKS)]
    ours += ["--set", framework, "--name", "mpi4py", "--command", "--", sys.executable, *suite]
    failed = False
    for number in range(1, given.rounds + 1):
        outcomes = [timed(command, environment, given.timeout) for command in (plain, ours)]
        ratio = outcomes[1].seconds / outcomes[0].seconds
        print(f"round {number}: plain {outcomes[0]}; stepset {outcomes[1]}; ratio {ratio:.2f}", flush=True)
        failed = failed or any(outcome.code for outcome in outcomes)
    return int(failed)


def timed(command: Sequence[str], environment: dict[str, str], timeout: float) -> Outcome:
    """Runs the suite once; prints its last lines if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        began = time.monotonic()
        with subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.terminate()
                code = process.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read()
    found = _SUMMARY.search(text)
    if code or not found:
        print("\n".join(text.splitlines()[-30:]), file=sys.stderr)
    return Outcome(round(seconds, 1), code, int(found[1]) if found else 0)


if __name__ == "__main__":
    sys.exit(main())
