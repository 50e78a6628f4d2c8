"""Runs groups of tests.

The groups are selected by their names, or by --quick (`make test`), --all (`make test-all`) or --remainder.

Groups that need a cluster run in parallel to the other groups. There are two clusters. Each cluster has its own
process, which runs the groups of this cluster. Tests that break a cluster run on the second cluster. The output of
these processes is printed when they have finished. The last lines list the failed tests and the number of all tests.

If a test fails, the suite fails. A failed test is run once more if it has the mark `retry`, which states a reason. At
most three tests of a suite are run once more. They are run when all other tests have finished. Each retry is printed.
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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster.testbed.borrow import borrowed  # noqa: E402  # after the change of sys.path
from tests.cluster.testbed.handle import NoClusterError, named  # noqa: E402
from tests.cluster.testbed.layout import NUMBER, NUMBER_VARIABLE, TestbedError  # noqa: E402
from tools.groups import GROUPS, Group, everything, quick, remainder  # noqa: E402
from tools.outcomes import VARIABLE  # noqa: E402

TESTS_FAILED = 1
"""The exit code of pytest if tests have failed. A higher exit code means that the tests could not be run."""
MOST_FAILED = 24
"""The maximum number of failed tests of a group.

If more tests fail, they probably have a common cause, and the suite stops."""
MOST_RETRIES = 3
"""The maximum number of tests of a suite that may be retried."""


class StopError(Exception):
    """A group could not be run, or very many of its tests failed. `code` is the exit code of pytest."""

    def __init__(self, group: Group, code: int) -> None:
        super().__init__(f"stopped: {group.name}: pytest exited with code {code}; the groups after it were not run")
        self.code = code


@dataclass(frozen=True)
class Retry:
    """A failed test that may be run once more, for the reason that its mark states."""

    group: Group
    test: str
    reason: str


@dataclass(frozen=True)
class Run:
    """One call of the suite, with the directory of the tests and a directory for files that its processes share."""

    tests: Path
    shared: Path

    @property
    def lock_file(self) -> Path:
        """The path of a file that contains the number of retries.

        A group holds a shared lock on the file while it runs. A retry holds an exclusive lock.
        """
        return self.shared / "retries"

    def outcomes(self, name: str) -> Path:
        """Returns the path of the file to which pytest writes the outcomes of a group or a retry."""
        return self.shared / f"{name}.json"


def main(arguments: Sequence[str], groups: Sequence[Group] = GROUPS, directory: Path = ROOT) -> int:
    """Runs the selected groups. Returns 0 if every test has passed."""
    began = time.monotonic()
    selected = select(arguments, groups)
    _raise_on_signals()
    with tempfile.TemporaryDirectory(prefix="stepset-tests-") as shared, ExitStack() as beside:
        run = Run(directory, Path(shared))
        run.lock_file.write_text("0")
        lanes = lanes_of(selected)
        ends = [beside.enter_context(_beside(lane, cluster, run)) for lane, cluster in lanes[1:]]
        try:
            code = run_groups(lanes[0][0], run)
        except StopError as error:
            code = error.code
            beside.close()
            print(f"\n{error}")
        else:
            code = next(filter(None, [code, *(end() for end in ends)]), 0)
            beside.close()
        if selected == quick(groups):
            print(not_run(groups, selected))
        print(summary(run.shared, time.monotonic() - began))
    return code


def select(arguments: Sequence[str], groups: Sequence[Group]) -> list[Group]:
    """Returns the groups that the arguments select. By default, returns groups that together run each test once."""
    known = [group.name for group in groups]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(known))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_const", dest="of", const=quick, help="the groups of `make test`")
    which.add_argument("--all", action="store_const", dest="of", const=everything, help="every test once (default)")
    which.add_argument(
        "--remainder", action="store_const", dest="of", const=remainder, help="tests of --all that --quick leaves out"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.groups) - set(known):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.groups:
        return [group for group in groups if group.name in given.groups]
    return list((given.of or everything)(groups))


def not_run(groups: Sequence[Group], selected: Sequence[Group]) -> str:
    """Returns a text with the groups that were not selected, and with the command that runs these groups."""
    titles = [f"  {group.name:<22}{group.title}" for group in everything(groups) if group not in selected]
    return "\n".join(["\nNot run (`make test-all` runs them; docs/testing/README.md lists what they need):", *titles])


def summary(shared: Path, seconds: float) -> str:
    """Returns the last lines of the output: each failed test with its error, and the numbers of tests by outcome."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in shared.glob("*.json")}
    retries = [outcomes for name, outcomes in found.items() if name.startswith("retry-")]
    groups = {name: outcomes for name, outcomes in found.items() if not name.startswith("retry-")}
    passed = sum(outcomes["passed"] for outcomes in found.values())
    skipped = sum(outcomes["skipped"] for outcomes in groups.values())
    failed = sum(len(outcomes["failed"]) for outcomes in groups.values()) - sum(map(passed_again, retries))
    minutes, rest = divmod(round(seconds), 60)
    errors = [
        f"failed: {name}: {test}: {each['error']}"
        for name, outcomes in groups.items()
        for test, each in outcomes["failed"].items()
    ]
    count = (
        f"{passed:,} passed, {skipped:,} skipped, {failed:,} failed, {len(retries)} retried"
        f" in {minutes} min {rest:02} s"
    )
    return "\n".join(["", *errors, count])


def lanes_of(groups: Sequence[Group]) -> list[tuple[list[Group], int]]:
    """Distributes the groups over lanes, which run in parallel. Returns the groups and the cluster number of each lane.

    The first lane contains the groups that need no cluster. If all groups need a cluster, the first lane contains the
    groups of the first cluster. In the result, the clusters are numbered again from 0. Therefore, if a group of the
    second cluster runs alone, it uses the first cluster, which is already running.
    """
    lanes: dict[int | None, list[Group]] = {}
    for group in groups:
        lanes.setdefault(group.cluster, []).append(group)
    without = lanes.pop(None, None)
    numbers = sorted({group.cluster for group in groups if group.cluster is not None})
    on_clusters = [(lanes[number], place) for place, number in enumerate(numbers)]
    return [*([(without, 0)] if without else []), *on_clusters]


@contextmanager
def _beside(groups: Sequence[Group], cluster: int, run: Run) -> Iterator[Callable[[], int]]:
    """A context manager that runs groups in another process.

    The context manager yields a function that waits for the process and returns its exit code. At the exit of the
    `with` block, the context manager stops the process if the process still runs. Then it prints the process's output.

    Args:
        groups: the groups.
        cluster: the number of the groups' cluster. It is added to the cluster number of this process.
        run: the call of the suite.
    """
    with tempfile.NamedTemporaryFile() as output:
        # The process is spawned and not forked, because the test bed reads the number of its cluster at import time.
        process = get_context("spawn").Process(target=_run_into, args=(output.name, groups, run))
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
            for line in output:
                sys.stdout.write(line.decode("utf-8", "replace"))
            sys.stdout.flush()


@contextmanager
def _environment(more: Mapping[str, str], without: Iterable[str]) -> Iterator[None]:
    """Adds and removes environment variables for the processes that are started inside the `with` block."""
    before = dict(os.environ)
    os.environ.update(more)
    for name in without:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _raise_on_signals() -> None:
    # A shell starts background programs in such a way that they ignore SIGINT. This program stops pytest with SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def _run_into(path: str, groups: Sequence[Group], run: Run) -> None:
    with Path(path).open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    _raise_on_signals()
    try:
        sys.exit(run_groups(groups, run))
    except StopError as error:
        print(f"\n{error}", flush=True)
        sys.exit(error.code)


def run_groups(groups: Sequence[Group], run: Run) -> int:
    """Runs groups one after the other, and then retries failed tests.

    If the groups need a cluster, all of them use the same cluster. Returns 0 if every test has passed, and 1 otherwise.
    Raises StopError if a group could not be run, or if very many of its tests failed.
    """
    try:
        with ExitStack() as cluster:
            with _lock(run.lock_file, fcntl.LOCK_SH):
                code, retries = _run(groups, run, cluster)
            for each in retries:
                with _lock(run.lock_file, fcntl.LOCK_EX):
                    code = _retried(each, run) or code
            return code
    except TestbedError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


@contextmanager
def _lock(path: Path, kind: int) -> Iterator[None]:
    """Holds a lock on a file. `kind` is a constant of fcntl. The system releases the lock if the process exits."""
    with path.open() as file:
        fcntl.flock(file, kind)
        yield


def _run(groups: Sequence[Group], run: Run, cluster: ExitStack) -> tuple[int, list[Retry]]:
    """Runs groups. Returns an exit code, and the failed tests that may be retried.

    The exit code is 1 if a test that must not be retried has failed, and 0 otherwise.
    """
    required = os.environ.get("STEPSET_CLUSTER") == "required"
    code, retries, has_cluster = 0, list[Retry](), False
    for group in groups:
        print(f"\n\033[1m{group.title}\033[0m", flush=True)
        if twin := twin_of(group):
            print(f"skipped: .venvs/{twin} has Python {python_of(twin)} too, and runs these tests")
            continue
        if unset := [name for name in group.needs if not os.environ.get(name)]:
            print(f"skipped: {' and '.join(unset)} not set (docs/testing/{group.name}.md)")
            continue
        if group.cluster is not None and not has_cluster:
            try:
                cluster.enter_context(borrowed(required))
            except NoClusterError as error:
                if required:
                    raise
                print(f"skipped: {error}")
                continue
            has_cluster = True
        # Files run in the given order. Without the option, files with few tests would run last, although these files
        # may take longest.
        by_file = ["--dist", "loadfile", "--no-loadscope-reorder"]
        options = ["-n", str(group.workers), *by_file] if group.workers > 1 else []
        outcomes = run.outcomes(group.name)
        ended = _pytest(group, outcomes, run.tests, ["-m", group.marks, *_paths(group), *options])
        if not ended:
            continue
        failed = json.loads(outcomes.read_text())["failed"] if outcomes.exists() else {}
        if ended != TESTS_FAILED or not 0 < len(failed) <= MOST_FAILED:
            raise StopError(group, ended)
        retries += [Retry(group, test, each["reason"]) for test, each in failed.items() if each["reason"]]
        if not all(each["reason"] for each in failed.values()):
            code = 1
    return code, retries


def _retried(retry: Retry, run: Run) -> int:
    """Runs a failed test once more unless the suite has used all its retries. Returns pytest's exit code."""
    used = int(run.lock_file.read_text())
    if used >= MOST_RETRIES:
        print(f"\nnot retried, because {MOST_RETRIES} other tests were retried: {retry.test}")
        return TESTS_FAILED
    run.lock_file.write_text(str(used + 1))
    print(f"\n\033[1;33mretried: {retry.test}: {retry.reason}\033[0m", flush=True)
    outcomes = run.outcomes(f"retry-{used}")
    ended = _pytest(retry.group, outcomes, run.tests, [retry.test])
    return ended or (0 if passed_again(json.loads(outcomes.read_text())) else TESTS_FAILED)


def passed_again(outcomes: Mapping[str, Any]) -> bool:
    """Returns whether a retry with these outcomes has passed. If the test was skipped, the retry has not passed."""
    return bool(outcomes["passed"] and not outcomes["failed"])


def twin_of(group: Group, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the first of a group's `twins` that has the same minor version of Python as the group's environment.

    Returns None if there is no such twin.
    """
    python = python_of(group.environment, environments)
    return next((twin for twin in group.twins if python and python_of(twin, environments) == python), None)


def python_of(environment: str, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the minor version of an environment's Python, such as "3.11".

    Returns None if the environment is not installed.
    """
    found = next((environments / environment).glob("lib/python3.*"), None)
    return found.name.removeprefix("python") if found else None


def _paths(group: Group) -> list[str]:
    return [*group.paths.split(), *([f"--ignore={group.excluded}"] if group.excluded else [])]


def _pytest(group: Group, outcomes: Path, directory: Path, arguments: Sequence[str]) -> int:
    """Runs pytest in a group's environment and returns the exit code."""
    environment = {**os.environ, VARIABLE: str(outcomes)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise thousands of processes compile imports
    if group.cluster is not None:
        environment["STEPSET_CLUSTER"] = "required"  # tests must not be skipped if the cluster disappears
    python = ROOT / ".venvs" / group.environment / "bin/python"
    command = [str(python), "-m", "pytest", "-q", "-p", "tools.outcomes", "-p", "no:cacheprovider"]
    command += ["--durations", "5", "--durations-min", "20", "--timeout", str(group.timeout), *arguments]
    before = _cpu_seconds()
    code = _call(command, directory, environment)
    print(f"{_cpu_seconds() - before:.0f} s of CPU time", flush=True)
    return code


def _cpu_seconds() -> float:
    """Returns the CPU time of all finished descendants whose parents waited for them."""
    times = os.times()
    return times.children_user + times.children_system


def _call(command: Sequence[str], directory: Path, environment: dict[str, str]) -> int:
    """Runs a command and returns its exit code.

    If this program is interrupted, it stops the command. pytest then tears down its fixtures.
    """
    with subprocess.Popen(command, cwd=directory, env=environment) as process:
        try:
            return process.wait()
        except BaseException as error:
            # Ctrl-C also reaches the command. A second SIGINT would interrupt the teardown of its fixtures.
            if not isinstance(error, KeyboardInterrupt):
                process.send_signal(signal.SIGINT)
            process.wait()
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
