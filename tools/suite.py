"""Every test, the quick ones first; stops at the first group that fails. `make test` calls it.

docs/testing/README.md tells what the groups need. Names of groups as arguments run only these. Those that need a
cluster mostly wait for it: they run beside the others, and what they print comes at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster.testbed.borrow import borrowed  # noqa: E402  # the path comes first
from tests.cluster.testbed.handle import NoClusterError  # noqa: E402
from tests.cluster.testbed.layout import TestbedError  # noqa: E402


@dataclass(frozen=True)
class Group:
    """Tests that are run together.

    Args:
        name: as an argument.
        title: as a heading.
        marks: pytest's expression.
        cluster: whether it needs one.
        environment: the one below .venvs that runs it.
        place: their directories or files, with spaces between them; pytest's own choice by default.
        workers: how many of them run at a time; more than there are cores where tests mostly wait for pods.
    """

    name: str
    title: str
    marks: str
    cluster: bool = False
    environment: str = "airflow"
    place: str = ""
    workers: int = 1


# Of those that need a cluster the ones that wait most come first: the others keep the processors busy meanwhile.
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
    Group("frameworks", "Training for real, each framework", "frameworks and not cluster"),
    Group("faults", "On a real cluster that breaks", "cluster and disruptive", cluster=True),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=True),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster",
        cluster=True,
        environment="kfp",
        place="tests/kfp",
        workers=3,
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=True,
        environment="kubernetes37",
        place="tests/cluster/test_logs.py",
    ),
    Group("cluster", "On a real cluster", "cluster and not disruptive and not stack", cluster=True, workers=4),
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
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    chosen = [group for group in groups if group.name in names]
    here = [group for group in chosen if not group.cluster]
    there = [group for group in chosen if group.cluster]
    if not (here and there):
        return run_groups(chosen, directory)
    with _beside(there, directory) as exit_code:
        return run_groups(here, directory) or exit_code()


@contextmanager
def _beside(groups: Sequence[Group], directory: Path) -> Iterator[Callable[[], int]]:
    """Runs groups in a process of its own; gives what waits for its exit code. What it prints comes at the end.

    It is told to end when the block is left before it has ended.
    """
    with tempfile.TemporaryFile() as said:
        process = get_context("fork").Process(target=_run_into, args=(said.fileno(), groups, directory))
        sys.stdout.flush()
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
            said.seek(0)
            for line in said:
                sys.stdout.write(line.decode("utf-8", "replace"))
            sys.stdout.flush()


def _run_into(file: int, groups: Sequence[Group], directory: Path) -> None:
    for stream in (1, 2):
        os.dup2(file, stream)
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
            if group.cluster and not borrowed_one:
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
    if group.cluster:
        environment["STEPSET_CLUSTER"] = "required"  # a cluster that goes away is no reason to skip its tests
    # A cache of its own: what failed in other groups, or an hour ago, is nobody's second chance.
    with tempfile.TemporaryDirectory(prefix="stepset-tests-") as cache:
        python = ROOT / ".venvs" / group.environment / "bin/python"
        command = [str(python), "-m", "pytest", "-q", "-m", group.marks, "-o", f"cache_dir={cache}"]
        command += group.place.split()
        side_by_side = ["-n", str(group.workers), "--dist", "loadfile"] if group.workers > 1 else []
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
