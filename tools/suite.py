"""Every test, the quick ones first; those that fail once more at the end. `make test` calls it.

docs/testing/README.md tells what the groups need. Names of groups as arguments run only these. Those that need a
cluster mostly wait for it: they run beside the others, on two clusters, because one of them is broken meanwhile; what
they print comes at the end.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster.testbed.borrow import borrowed  # noqa: E402  # the path comes first
from tests.cluster.testbed.handle import NoClusterError, named  # noqa: E402
from tests.cluster.testbed.layout import NUMBER, NUMBER_VARIABLE, TestbedError  # noqa: E402


@dataclass(frozen=True)
class Group:
    """Tests that are run together.

    Args:
        name: as an argument.
        title: as a heading.
        marks: pytest's expression.
        cluster: which of the suite's clusters it needs, counted from 0; None for none. Those of one run one after
            the other.
        environment: the one below .venvs that runs it.
        place: their directories or files, with spaces between them; all by default. Nothing is lost by leaving out
            where none of them are (tests/tools/test_suite.py), and collecting all takes nine seconds for each worker.
        without: a file of theirs that another group runs.
        workers: how many of them run at a time; more than there are cores where tests mostly wait for pods.
        twins: environments that other groups run the same tests in. The group is skipped if one of them has the same
            minor version of Python.
    """

    name: str
    title: str
    marks: str
    cluster: int | None = None
    environment: str = "airflow"
    place: str = ""
    without: str = ""
    workers: int = 1
    twins: tuple[str, ...] = ()


LOGS = "tests/cluster/test_logs.py"
CORE = "agent cli conformance functions kubernetes plan spec targets watch"
"""Directories of tests that need neither Airflow nor KFP, and no package that a Python may not have yet."""


def _on_python(which: str, twins: tuple[str, ...]) -> Group:
    return Group(
        which,
        f"The core, the command line and the agent on the {which} Python",
        "not frameworks and not airflow and not cluster and not kfp",
        environment=which,
        place=" ".join(f"tests/{directory}" for directory in CORE.split()),
        workers=3,
        twins=twins,
    )


GROUPS = (
    Group(
        "core",
        "The pure core, the command line, the manifests",
        "not local and not frameworks and not airflow and not cluster",
    ),
    Group(
        "local",
        "Processes on this machine: the agent and the local backend",
        "local and not frameworks and not airflow and not cluster",
        place="tests/agent tests/cli tests/local tests/tools",
        workers=3,
    ),
    _on_python("oldest", twins=("airflow",)),
    _on_python("newest", twins=("airflow", "oldest")),
    Group("airflow", "Airflow", "airflow and not cluster", place="tests/airflow", workers=2),
    Group("kfp", "Kubeflow Pipelines", "kfp and not cluster", environment="kfp", place="tests/kfp", workers=2),
    Group("kubernetes30", "The oldest kubernetes package", "not cluster", environment="kfp", place="tests/kubernetes"),
    Group("kubernetes37", "The newest", "not cluster", environment="kubernetes37", place="tests/kubernetes"),
    Group(
        "frameworks",
        "Training for real, each framework",
        "frameworks and not cluster",
        place="tests/frameworks tests/training",
        workers=2,
    ),
    Group(
        "cluster",
        "On a real cluster",
        "cluster and not disruptive and not stack",
        cluster=0,
        place="tests/airflow/cluster tests/cluster tests/targets/test_on_cluster.py tests/tools",
        without=LOGS,
        workers=4,
    ),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster",
        cluster=0,
        environment="kfp",
        place="tests/kfp",
        workers=3,
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=0,
        environment="kubernetes37",
        place=LOGS,
    ),
    Group(
        "faults",
        "On a real cluster that breaks",
        "cluster and disruptive",
        cluster=1,
        place="tests/airflow/cluster/test_meanwhile.py tests/cluster",
    ),
    Group("contract", "Every interface follows a run alike", "cluster", cluster=1, place="tests/contract"),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=1, place="tests/airflow/stack"),
)

TESTS_FAILED = 1
"""pytest's exit code where tests failed, as opposed to not having been run at all."""
FEW = 24
"""Tests of a group that may fail and be run again; where more do, it is not for want of time. Two files of them, say,
whose tests share an Airflow or a training that did not come up."""


class CannotGoOnError(Exception):
    """A group failed so that its tests need no second chance, nor the next group a first; `code` is pytest's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Failed:
    """Tests of a group that failed, and are to be run again.

    Args:
        group: theirs.
        tests: their ids.
        cache: pytest's, which has noted them: one of its own, because what failed in other groups, or an hour ago, is
            nobody's second chance.
    """

    group: Group
    tests: Sequence[str]
    cache: Path


def main(arguments: Sequence[str], groups: Sequence[Group] = GROUPS, directory: Path = ROOT) -> int:
    """Runs the groups; 0 when every test has passed, be it the second time."""
    known = [group.name for group in groups]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(known))
    names = parser.parse_args(arguments).groups or known
    if unknown := set(names) - set(known):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    _end_when_told()
    lanes = lanes_of([group for group in groups if group.name in names])
    with tempfile.NamedTemporaryFile(prefix="stepset-lanes-") as file, ExitStack() as beside:
        turns = Path(file.name)
        ends = [beside.enter_context(_beside(lane, cluster, directory, turns)) for lane, cluster in lanes[1:]]
        try:
            code = run_groups(lanes[0][0], directory, turns)
        except CannotGoOnError as error:
            return error.code  # and those beside are told to end
        return next(filter(None, [code, *(end() for end in ends)]), 0)


def lanes_of(groups: Sequence[Group]) -> list[tuple[list[Group], int]]:
    """What runs beside each other, and on which of the clusters: those that need none first.

    Without them those of the first cluster are the first, so that a group that runs alone has the cluster that is up.
    """
    lanes: dict[int | None, list[Group]] = {}
    for group in groups:
        lanes.setdefault(group.cluster, []).append(group)
    without = lanes.pop(None, None)
    numbers = sorted({group.cluster for group in groups if group.cluster is not None})
    on_clusters = [(lanes[number], place) for place, number in enumerate(numbers)]
    return [*([(without, 0)] if without else []), *on_clusters]


@contextmanager
def _beside(groups: Sequence[Group], cluster: int, directory: Path, turns: Path) -> Iterator[Callable[[], int]]:
    """Runs groups in a process of its own; gives what waits for its exit code. What it prints comes at the end.

    It is told to end when the block is left before it has ended.

    Args:
        groups: which.
        cluster: counted from the one that this process means.
        directory: where the tests are.
        turns: see run_groups.
    """
    with tempfile.NamedTemporaryFile() as said:
        # Spawned and not forked: which cluster a process means is settled when the testbed is imported.
        process = get_context("spawn").Process(target=_run_into, args=(said.name, groups, directory, turns))
        with _environment({NUMBER_VARIABLE: str(NUMBER + cluster)}, [] if named() else ["KUBECONFIG"]):
            process.start()

        def exit_code() -> int:
            process.join()
            return process.exitcode or 0

        try:
            yield exit_code
        finally:
            if process.is_alive():
                process.terminate()
            process.join()
            for line in said:
                sys.stdout.write(line.decode("utf-8", "replace"))
            sys.stdout.flush()


@contextmanager
def _environment(more: Mapping[str, str], without: Iterable[str]) -> Iterator[None]:
    """What is started meanwhile has these variables, and does not have those."""
    before = dict(os.environ)
    os.environ.update(more)
    for name in without:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _end_when_told() -> None:
    # Who is started in the background by a shell ignores it, and so would the tests that are told to end by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def _run_into(path: str, groups: Sequence[Group], directory: Path, turns: Path) -> None:
    with Path(path).open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    _end_when_told()
    try:
        sys.exit(run_groups(groups, directory, turns))
    except CannotGoOnError as error:
        sys.exit(error.code)


def run_groups(groups: Sequence[Group], directory: Path, turns: Path) -> int:
    """Runs groups one after the other, those that need a cluster with the same one; then what failed once more.

    These tests start real processes, nodes and networks on machines that do other things at the same time, so that one
    in thousands may fail for want of time. A test that fails again, when nothing else is run, has found something; one
    that passes then is unsteady, which is a defect of its own and said last of all, but no reason to run everything
    again.

    Args:
        groups: which.
        directory: where the tests are.
        turns: a file that those who run groups beside each other share: what failed is run again when all have come
            to their ends, and by one after the other.

    Returns:
        0 when every test has passed, be it the second time; else 1.

    Raises:
        CannotGoOnError: of the first group that fails so.
    """
    code, unsteady = 0, list[str]()
    try:
        with tempfile.TemporaryDirectory(prefix="stepset-tests-") as caches, ExitStack() as cluster:
            with _lock(turns, fcntl.LOCK_SH):
                failed = _run(groups, directory, Path(caches), cluster)
            if failed:
                with _lock(turns, fcntl.LOCK_EX):
                    for each in failed:
                        code = _run_again(each, unsteady, directory) or code
            return code
    except TestbedError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        if unsteady:
            print(f"\n\033[1;33m{len(unsteady)} failed, and passed when run once more. Mend them:\033[0m")
            for test in unsteady:
                print(f"unsteady: {test}")


@contextmanager
def _lock(path: Path, kind: int) -> Iterator[None]:
    """Holds a lock of a kind of fcntl's, that goes with the process."""
    with path.open() as file:
        fcntl.flock(file, kind)
        yield


def _run(groups: Sequence[Group], directory: Path, caches: Path, cluster: ExitStack) -> list[Failed]:
    """Runs groups; what failed and may be run again."""
    required = os.environ.get("STEPSET_CLUSTER") == "required"
    found: list[Failed] = []
    borrowed_one = False
    for group in groups:
        print(f"\n\033[1m{group.title}\033[0m", flush=True)
        if twin := twin_of(group):
            print(f"skipped: .venvs/{twin} has Python {python_of(twin)} too, and runs these tests")
            continue
        if group.cluster is not None and not borrowed_one:
            try:
                cluster.enter_context(borrowed(required))
            except NoClusterError as error:
                if required:
                    raise
                print(f"skipped: {error}")
                continue
            borrowed_one = True
        cache = caches / group.name
        # In the order of the files, and not those with most tests first: what takes long are few.
        by_file = ["--dist", "loadfile", "--no-loadscope-reorder"]
        code = _pytest(group, cache, directory, ["-n", str(group.workers), *by_file] if group.workers > 1 else [])
        if not code:
            continue
        noted = cache / "v/cache/lastfailed"
        tests = json.loads(noted.read_text()) if code == TESTS_FAILED and noted.exists() else {}
        if not 0 < len(tests) <= FEW:
            raise CannotGoOnError(code)
        found.append(Failed(group, list(tests), cache))
    return found


def twin_of(group: Group, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the first twin of a group's environment that has the same minor version of Python, if there is one."""
    python = python_of(group.environment, environments)
    return next((twin for twin in group.twins if python and python_of(twin, environments) == python), None)


def python_of(environment: str, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the minor version of an environment's Python, such as "3.11"; None if it is not installed."""
    found = next((environments / environment).glob("lib/python3.*"), None)
    return found.name.removeprefix("python") if found else None


def _run_again(failed: Failed, unsteady: list[str], directory: Path) -> int:
    """Gives tests that failed their second chance; `unsteady` gets those that take it. pytest's exit code."""
    print(f"\n\033[1m{failed.group.title}: {len(failed.tests)} failed; once more, by themselves\033[0m", flush=True)
    again = ["--last-failed", "--last-failed-no-failures", "none"]
    code = _pytest(failed.group, failed.cache, directory, again)
    still = json.loads((failed.cache / "v/cache/lastfailed").read_text()) if code else {}
    unsteady += [test for test in failed.tests if test not in still]
    return code


def _pytest(group: Group, cache: Path, directory: Path, more: Sequence[str]) -> int:
    """Runs pytest on a group's tests; its exit code."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of thousands of processes compiles what it imports
    if group.cluster is not None:
        environment["STEPSET_CLUSTER"] = "required"  # a cluster that goes away is no reason to skip its tests
    python = ROOT / ".venvs" / group.environment / "bin/python"
    command = [str(python), "-m", "pytest", "-q", "-m", group.marks, "-o", f"cache_dir={cache}"]
    command += [*group.place.split(), *([f"--ignore={group.without}"] if group.without else []), *more]
    return _call(command, directory, environment)


def _call(command: Sequence[str], directory: Path, environment: dict[str, str]) -> int:
    """Runs a command to its end; when this program is told to end, it ends too, with its fixtures torn down."""
    with subprocess.Popen(command, cwd=directory, env=environment) as process:
        try:
            return process.wait()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):  # Ctrl-C has reached it as well, and twice would cut it short
                process.send_signal(signal.SIGINT)
            process.wait()
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
