"""Every test, the quick ones first; stops at the first group that fails. `make test` calls it.

docs/testing/README.md tells what the groups need. Names of groups as arguments run only these. Those that need a
cluster mostly wait for it: they run beside the others, on two clusters, because one of them is broken meanwhile; what
they print comes at the end.
"""

from __future__ import annotations

import argparse
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
        place: their directories or files, with spaces between them; pytest's own choice by default.
        without: a file of theirs that another group runs.
        workers: how many of them run at a time; more than there are cores where tests mostly wait for pods.
    """

    name: str
    title: str
    marks: str
    cluster: int | None = None
    environment: str = "airflow"
    place: str = ""
    without: str = ""
    workers: int = 1


LOGS = "tests/cluster/test_logs.py"

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
        workers=3,
    ),
    Group("airflow", "Airflow", "airflow and not cluster", workers=3),
    Group("kfp", "Kubeflow Pipelines", "kfp and not cluster", environment="kfp", place="tests/kfp", workers=2),
    Group("kubernetes30", "The oldest kubernetes package", "not cluster", environment="kfp", place="tests/kubernetes"),
    Group("kubernetes37", "The newest", "not cluster", environment="kubernetes37", place="tests/kubernetes"),
    Group("frameworks", "Training for real, each framework", "frameworks and not cluster", workers=2),
    Group(
        "cluster",
        "On a real cluster",
        "cluster and not disruptive and not stack",
        cluster=0,
        without=LOGS,
        workers=4,
    ),
    Group("faults", "On a real cluster that breaks", "cluster and disruptive", cluster=1),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=1),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster",
        cluster=1,
        environment="kfp",
        place="tests/kfp",
        workers=3,
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=1,
        environment="kubernetes37",
        place=LOGS,
    ),
)

# pytest's exit code where tests failed, as opposed to not having been run at all.
TESTS_FAILED = 1


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
    with ExitStack() as beside:
        ends = [beside.enter_context(_beside(lane, cluster, directory)) for lane, cluster in lanes[1:]]
        code = run_groups(lanes[0][0], directory)
        for end in ends:
            code = code or end()
        return code


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
def _beside(groups: Sequence[Group], cluster: int, directory: Path) -> Iterator[Callable[[], int]]:
    """Runs groups in a process of its own; gives what waits for its exit code. What it prints comes at the end.

    It is told to end when the block is left before it has ended.

    Args:
        groups: which.
        cluster: counted from the one that this process means.
        directory: where the tests are.
    """
    with tempfile.NamedTemporaryFile() as said:
        # Spawned and not forked: which cluster a process means is settled when the testbed is imported.
        process = get_context("spawn").Process(target=_run_into, args=(said.name, groups, directory))
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


def _run_into(path: str, groups: Sequence[Group], directory: Path) -> None:
    with Path(path).open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    _end_when_told()
    sys.exit(run_groups(groups, directory))


def run_groups(groups: Sequence[Group], directory: Path) -> int:
    """Runs groups one after the other, and names the unsteady tests last of all; the first bad exit code."""
    unsteady: list[str] = []
    try:
        return _run(groups, unsteady, directory)
    except TestbedError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        if unsteady:
            print(f"\n\033[1;33m{len(unsteady)} failed, and passed when run once more. Mend them:\033[0m")
            for test in unsteady:
                print(f"unsteady: {test}")


def _run(groups: Sequence[Group], unsteady: list[str], directory: Path) -> int:
    """Runs groups one after the other, those that need a cluster with the same one; the first bad exit code."""
    required = os.environ.get("STEPSET_CLUSTER") == "required"
    with ExitStack() as cluster:
        borrowed_one = False
        for group in groups:
            print(f"\n\033[1m{group.title}\033[0m", flush=True)
            if group.cluster is not None and not borrowed_one:
                try:
                    cluster.enter_context(borrowed(required))
                except NoClusterError as error:
                    if required:
                        raise
                    print(f"skipped: {error}")
                    continue
                borrowed_one = True
            if code := run_group(group, unsteady, directory):
                return code
    return 0


def run_group(group: Group, unsteady: list[str], directory: Path) -> int:
    """Runs a group; tests that fail get a second chance, and are named when they take it.

    These tests start real processes, nodes and networks on machines that do other things at the same time, so that one
    in thousands may fail for want of time. A test that fails again, when only those that failed are run, has found
    something; one that passes then is unsteady, which is a defect of its own and said last of all, but no reason to
    run everything again.

    Args:
        group: which.
        unsteady: gets the tests that passed only the second time.
        directory: where the tests are.

    Returns:
        pytest's exit code.
    """
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of thousands of processes compiles what it imports
    if group.cluster is not None:
        environment["STEPSET_CLUSTER"] = "required"  # a cluster that goes away is no reason to skip its tests
    # A cache of its own: what failed in other groups, or an hour ago, is nobody's second chance.
    with tempfile.TemporaryDirectory(prefix="stepset-tests-") as cache:
        python = ROOT / ".venvs" / group.environment / "bin/python"
        command = [str(python), "-m", "pytest", "-q", "-m", group.marks, "-o", f"cache_dir={cache}"]
        command += [*group.place.split(), *([f"--ignore={group.without}"] if group.without else [])]
        # In the order of the files, and not those with most tests first: what takes long are few.
        by_file = ["--dist", "loadfile", "--no-loadscope-reorder"]
        side_by_side = ["-n", str(group.workers), *by_file] if group.workers > 1 else []
        code = _call([*command, *side_by_side], directory, environment)
        noted = Path(cache, "v/cache/lastfailed")
        if code != TESTS_FAILED or not noted.exists():
            return code
        failed = json.loads(noted.read_text())
        print(f"\n\033[1m{len(failed)} failed; once more, by themselves\033[0m", flush=True)
        again = ["--last-failed", "--last-failed-no-failures", "none"]
        code = _call([*command, *again], directory, environment)
        if not code:
            unsteady += failed
        return code


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
