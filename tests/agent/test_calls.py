"""The call of MPI in which a process is, with a small library in place of MPI."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stepset.agent.hangs.calls import Calls, canonical, mappings
from stepset.agent.hangs.elf import UNREADABLE, Elf
from stepset.agent.hangs.perf import Perf
from tests.agent.test_native import program
from tests.waiting import until

LIBRARY = r"""
#include <sched.h>
#include <unistd.h>
#define HIDDEN __attribute__((noinline, visibility("hidden")))
HIDDEN int progress(volatile int *done) { for (int i = 0; i < 1000; i++) *done += 0; sched_yield(); return *done; }
HIDDEN void poll_until(volatile int *done) { while (!progress(done)) ; }
int MPI_Recv(int ends) {
    volatile int done[ends + 8];  /* The size of the frame is not constant. */
    done[0] = ends;
    poll_until(done);
    return done[0] + 1;
}
int mpi_barrier_(void) { return MPI_Recv(0) + 1; }
int MPI_Pause(void) { for (;;) usleep(100); }
int MPI_Op(int (*function)(void)) { return function() + 1; }
"""
PROGRAM = r"""
#include <stdlib.h>
#include <unistd.h>
int MPI_Recv(int), mpi_barrier_(void), MPI_Pause(void), MPI_Op(int (*)(void));
static int compute(void) { volatile int i = 0; for (;;) i++; return i; }
static int in_a_loop(void) { for (;;) MPI_Recv(1); }
int main(int argc, char **argv) {
    write(1, "runs", 4);
    switch (atoi(argv[1])) {
        case 0: return MPI_Recv(0) + 1;
        case 1: return mpi_barrier_() + 1;
        case 2: return MPI_Pause() + 1;
        case 3: return compute() + 1;
        case 4: return in_a_loop() + 1;
        case 5: return MPI_Op(compute) + 1;
        default: pause();
    }
    return 0;
}
"""
RECV, BARRIER, PAUSE, COMPUTE, LOOP, OPERATION, SLEEP = map(str, range(7))


@pytest.fixture(scope="module", params=["-O0", "-O2", "-O2 -fno-omit-frame-pointer", "-O3 -mavx -mstackrealign"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, compiled with different options."""
    try:
        os.close(Perf().counter(os.getpid(), 4096))
    except (OSError, ImportError) as error:
        pytest.skip(f"perf_event_open: {error}")
    directory = tmp_path_factory.mktemp("program")
    (directory / "library.c").write_text(LIBRARY)
    (directory / "program.c").write_text(PROGRAM)
    gcc = [program("gcc"), *request.param.split()]
    subprocess.run([*gcc, "-shared", "-fPIC", "library.c", "-o", "libmpi_small.so"], cwd=directory, check=True)
    words = ["program.c", "-L.", "-lmpi_small", f"-Wl,-rpath,{directory}", "-o", "program"]
    subprocess.run([*gcc, *words], cwd=directory, check=True)
    return str(directory / "program")


@contextmanager
def running(built: str, case: str) -> Iterator[int]:
    with subprocess.Popen([built, case], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.read(4) == b"runs"
        yield process.pid
        process.kill()


@pytest.mark.parametrize(("case", "name"), [(RECV, "MPI_Recv"), (BARRIER, "MPI_Barrier"), (PAUSE, "MPI_Pause")])
def test_the_call_is_named(built: str, case: str, name: str) -> None:
    with running(built, case) as pid:
        assert until(lambda: Calls([pid]).end() == {pid: {"call": name}})


@pytest.mark.parametrize("case", [COMPUTE, LOOP, OPERATION, SLEEP])
def test_a_process_that_is_in_no_single_call_has_none(built: str, case: str) -> None:
    with running(built, case) as pid:
        for _ in range(5):
            assert Calls([pid]).end() == {}


def test_a_process_without_mpi_is_not_observed() -> None:
    assert Calls([os.getpid()]).end() == {}


def test_a_file_of_any_content_is_unreadable_or_has_functions(tmp_path: Path) -> None:
    (path,) = {row[3] for row in mappings(os.getpid()) if "/libc.so" in row[3] or "/libc-" in row[3]}
    whole, draw = Path(path).read_bytes()[: 1 << 21], random.Random(1)
    file = tmp_path / "library"
    for number in range(60):
        data = bytearray(whole[: draw.choice([0, 10, 64, 1000, 1 << 21])])
        for _ in range(min(len(data), 1 << draw.randrange(12))):
            data[draw.randrange(len(data) if number % 2 else min(len(data), 1000))] = draw.randrange(256)
        file.write_bytes(data)
        with suppress(*UNREADABLE, OSError):
            elf = Elf(str(file))
            for address in range(0, 1 << 20, 1 << 17):
                with suppress(*UNREADABLE, OSError):
                    assert isinstance(elf.function(address, (b"get",)), str)
                with suppress(*UNREADABLE, OSError):
                    elf.caller(address, {7: 1 << 40}, lambda _: 1)


def test_the_names_of_functions_are_those_of_c() -> None:
    assert [canonical(name) for name in ("PMPI_Recv", "mpi_allreduce_", "ompi_mpi_finalize", "")] == [
        "MPI_Recv",
        "MPI_Allreduce",
        "MPI_Finalize",
        "",
    ]
