"""Runs groups of tests, given by name or by --quick (`make test`), --all (`make test-all`) or --remainder.

Groups that need a cluster run in parallel to the others, in one process for each of two clusters: tests that break a
cluster run on the second. Their output is printed at the end. The last lines list failed tests and count all tests.

A failed test fails the suite. Only tests with the mark `retry`, which states a reason, are run once more, when all
other tests have ended: at most three tests of a suite. Each retry is printed.
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

from tests.cluster.testbed.borrow import borrowed  # noqa: E402  # the path comes first
from tests.cluster.testbed.handle import NoClusterError, named  # noqa: E402
from tests.cluster.testbed.layout import NUMBER, NUMBER_VARIABLE, TestbedError  # noqa: E402
from tools.groups import GROUPS, Group, everything, quick, remainder  # noqa: E402
from tools.outcomes import VARIABLE  # noqa: E402

TESTS_FAILED = 1
"""pytest's exit code if tests failed; a higher code means that the tests could not be run."""
MOST_FAILED = 24
"""Maximum failed tests of a group; more have a common cause, and stop the suite."""
MOST_RETRIES = 3
"""Tests of a suite that may be retried."""


class StopError(Exception):
    """A group could not be run, or very many of its tests failed; `code` is pytest's exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Retry:
    """A failed test that may be run once more, for the reason that its mark states."""

    group: Group
    test: str
    reason: str


@dataclass(frozen=True)
class Run:
    """One call of the suite: the directory of the tests, and one for the files that its processes share."""

    tests: Path
    shared: Path

    @property
    def lock_file(self) -> Path:
        """Contains the number of retries. Groups hold a shared lock on it while they run, a retry an exclusive one."""
        return self.shared / "retries"

    def outcomes(self, name: str) -> Path:
        """The file in which pytest writes the outcomes of a group or a retry."""
        return self.shared / f"{name}.json"


def main(arguments: Sequence[str], groups: Sequence[Group] = GROUPS, directory: Path = ROOT) -> int:
    """Runs the groups; returns 0 if every test has passed."""
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
        else:
            code = next(filter(None, [code, *(end() for end in ends)]), 0)
            beside.close()
        if selected == quick(groups):
            print(not_run(groups, selected))
        print(summary(run.shared, time.monotonic() - began))
    return code


def select(arguments: Sequence[str], groups: Sequence[Group]) -> list[Group]:
    """Returns the groups that the arguments select; default: all, each test once."""
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
    """Returns the list of the groups that were not selected, and the command that runs them."""
    titles = [f"  {group.name:<22}{group.title}" for group in everything(groups) if group not in selected]
    return "\n".join(["\nNot run (`make test-all` runs them; docs/testing/README.md lists what they need):", *titles])


def summary(shared: Path, seconds: float) -> str:
    """Returns the last lines of the output: each failed test with its error, and the line that counts all tests."""
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
    """Returns the lanes, which run in parallel: the groups of each, and their cluster. The first lane needs no cluster.

    If all groups need a cluster, the first lane is that of the first cluster. The clusters of the result are numbered
    from 0, so that a group that runs alone uses the cluster that is running.
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
    """Runs groups in another process; yields a function that waits for its exit code.

    The end of the block stops the process if it has not ended, and prints its output.

    Args:
        groups: the groups.
        cluster: the number of their cluster, relative to this process's.
        run: the call of the suite.
    """
    with tempfile.NamedTemporaryFile() as output:
        # Spawned and not forked: the test bed reads the number of its cluster when it is imported.
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
    """Adds and removes environment variables for the processes that the block starts."""
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
    # A shell starts background programs with SIGINT ignored, but this program ends pytest with SIGINT.
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
        sys.exit(error.code)


def run_groups(groups: Sequence[Group], run: Run) -> int:
    """Runs groups one after the other, all on the same cluster if they need one; then retries.

    Returns 0 if every test has passed, else 1. Raises StopError after a group that could not be run, or of which very
    many tests failed.
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
    """Holds a lock of fcntl's kind on a file; the system releases it if the process ends."""
    with path.open() as file:
        fcntl.flock(file, kind)
        yield


def _run(groups: Sequence[Group], run: Run, cluster: ExitStack) -> tuple[int, list[Retry]]:
    """Runs groups; returns 1 if a test failed that must not be retried, else 0, and the failed tests to retry."""
    required = os.environ.get("STEPSET_CLUSTER") == "required"
    code, retries, has_cluster = 0, list[Retry](), False
    for group in groups:
        print(f"\n\033[1m{group.title}\033[0m", flush=True)
        if twin := twin_of(group):
            print(f"skipped: .venvs/{twin} has Python {python_of(twin)} too, and runs these tests")
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
        # In the order of the files, not by their number of tests: files with few tests may take longest.
        by_file = ["--dist", "loadfile", "--no-loadscope-reorder"]
        options = ["-n", str(group.workers), *by_file] if group.workers > 1 else []
        outcomes = run.outcomes(group.name)
        ended = _pytest(group, outcomes, run.tests, ["-m", group.marks, *_paths(group), *options])
        if not ended:
            continue
        failed = json.loads(outcomes.read_text())["failed"] if outcomes.exists() else {}
        if ended != TESTS_FAILED or not 0 < len(failed) <= MOST_FAILED:
            raise StopError(ended)
        retries += [Retry(group, test, each["reason"]) for test, each in failed.items() if each["reason"]]
        if not all(each["reason"] for each in failed.values()):
            code = 1
    return code, retries


def _retried(retry: Retry, run: Run) -> int:
    """Runs a failed test once more, if the suite's retries are not used up; returns pytest's exit code."""
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
    """Returns whether the retry with these outcomes has passed; a skipped test has not."""
    return bool(outcomes["passed"] and not outcomes["failed"])


def twin_of(group: Group, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the first twin of a group's environment that has the same minor version of Python, if there is one."""
    python = python_of(group.environment, environments)
    return next((twin for twin in group.twins if python and python_of(twin, environments) == python), None)


def python_of(environment: str, environments: Path = ROOT / ".venvs") -> str | None:
    """Returns the minor version of an environment's Python, such as "3.11"; None if it is not installed."""
    found = next((environments / environment).glob("lib/python3.*"), None)
    return found.name.removeprefix("python") if found else None


def _paths(group: Group) -> list[str]:
    return [*group.paths.split(), *([f"--ignore={group.excluded}"] if group.excluded else [])]


def _pytest(group: Group, outcomes: Path, directory: Path, arguments: Sequence[str]) -> int:
    """Runs pytest in a group's environment; returns its exit code."""
    environment = {**os.environ, VARIABLE: str(outcomes)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else thousands of processes compile their imports
    if group.cluster is not None:
        environment["STEPSET_CLUSTER"] = "required"  # tests must not be skipped if the cluster disappears
    python = ROOT / ".venvs" / group.environment / "bin/python"
    command = [str(python), "-m", "pytest", "-q", "-p", "tools.outcomes", "-p", "no:cacheprovider"]
    command += ["--timeout", str(group.timeout), *arguments]
    return _call(command, directory, environment)


def _call(command: Sequence[str], directory: Path, environment: dict[str, str]) -> int:
    """Runs a command to its end; if this program is ended, ends the command, with its fixtures torn down."""
    with subprocess.Popen(command, cwd=directory, env=environment) as process:
        try:
            return process.wait()
        except BaseException as error:
            # Ctrl-C reaches the command, too; a second SIGINT would stop the teardown of its fixtures.
            if not isinstance(error, KeyboardInterrupt):
                process.send_signal(signal.SIGINT)
            process.wait()
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
