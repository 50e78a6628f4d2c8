"""The groups of tests: failed tests are run again at the end, what fails a run, and that each test has one group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from noxfile import GROUPS, Group, python_of, twin_of, workers

from tests.waiting import until

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
NOXFILE = """
import sys
sys.path.insert(0, {root!r})
from noxfile import Group, define
define(Group("one", "First", "one", paths="test_it.py test_more.py", workers={workers}))
define(Group("two", "Second", "two", paths="test_it.py", {second}))
"""
CONFTEST = "from tests import violations\ndef pytest_configure(config): config.pluginmanager.register(violations)\n"
MARKS = "import pathlib, pytest, time\none, two = pytest.mark.one, pytest.mark.two\nran = pathlib.Path('ran')\n"
STEADY = "@one\ndef test_steady():\n    ran.open('a').write('steady ')\n"
UNSTEADY = (
    "@pytest.fixture\ndef start():\n    return ran.read_text().count('un')\n\n"
    "@one\ndef test_unsteady(start):\n    ran.open('a').write('unsteady ')\n    assert start == {passes_after}\n"
)
WRONG = "@one\ndef test_wrong():\n    ran.open('a').write('wrong ')\n    assert 0\n"
LATER = "@two\ndef test_later():\n    ran.open('a').write('later ')\n"


def run(
    directory: Path, *tests: str, second: str = "", workers: int = 1, terminate_when: Path | None = None
) -> tuple[int, list[str], list[str]]:
    """Runs tests as two groups, as `make test` does.

    Args:
        directory: where the tests are written.
        tests: their texts.
        second: further arguments of the second group.
        workers: the number of processes of the first group.
        terminate_when: nox is terminated when this file exists.

    Returns:
        The exit code of the run, the tests in the order of their runs, and the lines of the summary.
    """
    (directory / "test_it.py").write_text("\n\n".join((MARKS, *tests)))
    (directory / "test_more.py").touch()
    (directory / "ran").touch()
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    one\n    two\n")
    (directory / "noxfile.py").write_text(NOXFILE.format(root=str(ROOT), workers=workers, second=second))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STEPSET_REPORTS": str(directory / "reports")}
    # As a shell starts programs in the background: without SIGINT.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "nox", "-s", "one", "two"]
    nox = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        if terminate_when is not None:
            assert until(terminate_when.exists)
            nox.terminate()
        code = nox.wait(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(nox.pid, signal.SIGKILL)  # pytest, too
        pytest.fail("nox has not ended after 300 s")
    done = subprocess.run(
        [sys.executable, ROOT / "tools/results.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return code or done.returncode, (directory / "ran").read_text().split(), done.stdout.strip().splitlines()


def test_tests_that_pass_are_run_once_and_group_by_group(tmp_path: Path) -> None:
    assert run(tmp_path, LATER, STEADY) == (0, ["steady", "later"], ["2 passed, 0 failed, 0 skipped"])


class TestAFailedTest:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_that_passes_when_the_others_have_ended_is_unsteady_and_does_not_fail_the_run(
        self, tmp_path: Path, workers: int
    ) -> None:
        for passes_after in (1, 2):
            directory = tmp_path / str(passes_after)
            directory.mkdir()
            unsteady = UNSTEADY.format(passes_after=passes_after)
            code, ran, summary = run(directory, unsteady, STEADY, LATER, workers=workers)
            assert code == 0
            assert ran == ["unsteady", "steady", *["unsteady"] * passes_after, "later"]
            assert summary == [
                f"unsteady: one: test_it::test_unsteady: assert 0 == {passes_after}",
                "3 passed, 0 failed, 0 skipped",
            ]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_that_fails_three_times_fails_the_run(self, tmp_path: Path, workers: int) -> None:
        code, ran, summary = run(tmp_path, WRONG, STEADY, LATER, workers=workers)
        assert code == 1
        assert ran == ["wrong", "steady", "wrong", "wrong", "later"]
        assert summary == ["failed: one: test_it::test_wrong: assert 0", "2 passed, 1 failed, 0 skipped"]

    def test_does_not_excuse_another(self, tmp_path: Path) -> None:
        unsteady = UNSTEADY.format(passes_after=1)
        code, ran, summary = run(tmp_path, unsteady, WRONG, LATER)
        assert (code, sorted(ran)) == (1, ["later", "unsteady", "unsteady", "wrong", "wrong", "wrong"])
        assert [line.partition(":")[0] for line in summary] == ["unsteady", "failed", "2 passed, 1 failed, 0 skipped"]

    def test_that_is_skipped_later_fails_the_run(self, tmp_path: Path) -> None:
        skips = WRONG.replace(
            "    assert 0", "    if ran.read_text().count('wrong') > 1: pytest.skip('no')\n    assert 0"
        )
        code, ran, summary = run(tmp_path, skips, LATER)
        assert (code, ran) == (1, ["wrong", "wrong", "later"])
        assert summary[-1] == "1 passed, 1 failed, 0 skipped"

    @pytest.mark.parametrize("workers", [1, 2])
    def test_with_a_violation_fails_the_run_although_it_passes_later(self, tmp_path: Path, workers: int) -> None:
        violates = (
            "@one\ndef test_runs():\n    from tests.violations import at_most\n    ran.open('a').write('runs ')\n"
            "    at_most(1, ['train-1', 'train-2'] if ran.read_text() == 'runs ' else ['train-1'])\n"
        )
        code, ran, summary = run(tmp_path, violates, LATER, workers=workers)
        assert (code, ran) == (1, ["runs", "runs", "later"])
        error = "violation: 2 instead of at most 1: train-1, train-2"
        assert summary == [f"failed: one: test_it::test_runs: {error}", "1 passed, 1 failed, 0 skipped"]

    def test_in_the_teardown_is_one_failed_test(self, tmp_path: Path) -> None:
        breaks = (
            "@pytest.fixture\ndef breaks():\n    yield\n    assert 1 == 2\n\n@one\ndef test_x(breaks):\n    assert 0\n"
        )
        code, _, summary = run(tmp_path, breaks, LATER)
        assert (code, summary) == (1, ["failed: one: test_it::test_x: assert 0", "1 passed, 1 failed, 0 skipped"])


def test_a_test_whose_only_error_is_in_a_fixture_is_run_again_with_a_new_fixture(tmp_path: Path) -> None:
    fixture = (
        "@pytest.fixture(scope='module')\ndef server():\n    ran.open('a').write('server ')\n"
        "    assert ran.read_text().count('server') > 1\n\n@one\ndef test_it(server):\n    pass\n"
    )
    code, ran, summary = run(tmp_path, fixture, LATER)
    assert (code, ran) == (0, ["server", "server", "later"])
    error = 'failed on setup with "AssertionError: assert 1 > 1'
    assert summary == [f"unsteady: one: test_it::test_it: {error}", "2 passed, 0 failed, 0 skipped"]


def test_more_than_ten_failed_tests_of_a_group_are_not_run_again(tmp_path: Path) -> None:
    many = (
        "@one\n@pytest.mark.parametrize('n', range(11))\ndef test_x(n):\n    ran.open('a').write('x ')\n    assert 0\n"
    )
    code, ran, summary = run(tmp_path, many, LATER)
    assert (code, ran, summary[-1]) == (1, [*["x"] * 11, "later"], "1 passed, 11 failed, 0 skipped")


def test_more_than_ten_unsteady_tests_of_all_groups_fail_the_run(tmp_path: Path) -> None:
    tests = [
        f"@{group}\n@pytest.mark.parametrize('n', range(6))\ndef test_{group}(n):\n"
        f"    path = ran.with_name(f'{group}{{n}}')\n    again = path.exists()\n    path.touch()\n    assert again\n"
        for group in ("one", "two")
    ]
    code, _, summary = run(tmp_path, *tests)
    assert code == 1
    assert summary[-2:] == ["failed: 12 tests are unsteady, more than 10", "12 passed, 0 failed, 0 skipped"]


def test_a_group_of_pure_functions_is_run_once(tmp_path: Path) -> None:
    code, ran, _ = run(tmp_path, STEADY, WRONG.replace("@one", "@two"), second="tries=1")
    assert (code, ran) == (1, ["steady", "wrong"])
    assert [group.name for group in GROUPS if group.tries == 1] == ["core", "exhaustive"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path, workers: int) -> None:
    code, _, _ = run(tmp_path, STEADY, LATER, "import nothing_like_this", workers=workers)
    assert code != 0


def test_a_group_without_tests_fails_the_run(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, STEADY)
    assert code != 0


def test_a_test_that_hangs_fails_and_the_others_are_run(tmp_path: Path) -> None:
    hangs = "@two\ndef test_hangs():\n    time.sleep(600)\n"
    code, ran, summary = run(tmp_path, hangs, LATER, STEADY, second="timeout=5, tries=1")
    assert (code, ran) == (1, ["steady", "later"])
    assert summary == [
        "failed: two: test_it::test_hangs: Failed: Timeout (>5.0s) from pytest-timeout.",
        "2 passed, 1 failed, 0 skipped",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminated_run_tears_down_its_fixtures_and_fails(tmp_path: Path, workers: int) -> None:
    endless = (
        "@pytest.fixture\ndef server():\n    yield\n    ran.open('a').write('stopped ')\n\n"
        "@one\ndef test_endless(server):\n    pathlib.Path('began').touch()\n    time.sleep(600)\n"
    )
    code, ran, _ = run(tmp_path, endless, LATER, workers=workers, terminate_when=tmp_path / "began")
    assert (code != 0, ran) == (True, ["stopped"])


def test_a_group_that_needs_variables_is_skipped(tmp_path: Path) -> None:
    code, ran, summary = run(tmp_path, STEADY, LATER, second="needs=('NOT_SET_HERE', 'PATH')")
    assert (code, ran, summary) == (0, ["steady"], ["1 passed, 0 failed, 0 skipped"])
    needing = [group for group in GROUPS if group.needs]
    assert needing and not any(group.tier for group in needing), "only a user who names such a group runs it"
    assert all((ROOT / f"docs/testing/{group.name}.md").is_file() for group in needing), "the message names this file"


def test_a_group_whose_python_another_environment_has_is_skipped(tmp_path: Path) -> None:
    code, ran, summary = run(tmp_path, STEADY, LATER, second="twins=('airflow',)")
    assert (code, ran, summary) == (0, ["steady"], ["1 passed, 0 failed, 0 skipped"])


@pytest.mark.parametrize(
    ("airflow", "oldest", "newest", "skipped"),
    [
        ("3.11", "3.11", "3.13", {"oldest": "airflow"}),
        ("3.12", "3.11", "3.13", {}),
        ("3.13", "3.11", "3.13", {"newest": "airflow"}),
        ("3.12", "3.12", "3.12", {"oldest": "airflow", "newest": "airflow"}),
        ("3.12", "3.11", "3.11", {"newest": "oldest"}),
    ],
)
def test_no_python_runs_the_tests_of_the_core_twice(
    tmp_path: Path, airflow: str, oldest: str, newest: str, skipped: dict[str, str]
) -> None:
    for environment, version in {"airflow": airflow, "oldest": oldest, "newest": newest}.items():
        (tmp_path / environment / "lib" / f"python{version}").mkdir(parents=True)
    found = {group.name: twin_of(group, tmp_path) for group in GROUPS}
    assert {name: twin for name, twin in found.items() if twin} == skipped


def test_an_environment_that_is_not_installed_has_no_python_and_no_twin(tmp_path: Path) -> None:
    assert python_of("newest", tmp_path) is None
    assert {twin_of(group, tmp_path) for group in GROUPS} == {None}


@pytest.mark.parametrize(("cores", "load", "expected"), [(2, 0.2, 3), (2, 4.0, 2), (2, 40.0, 2), (8, 1.0, 4)])
def test_the_number_of_workers_follows_the_cores_and_the_load(cores: int, load: float, expected: int) -> None:
    assert workers(Group("x", "", "", workers=4), cores, load) == expected


@pytest.mark.parametrize("group", [group for group in GROUPS if group.workers > 1], ids=lambda group: group.name)
def test_the_environment_of_a_group_with_several_workers_has_xdist(group: Group) -> None:
    lock = {"oldest": "core", "newest": "core"}.get(group.environment, group.environment)
    assert "\npytest-xdist==" in (ROOT / "locks" / f"{lock}.txt").read_text()


COLLECTS = """
import json
def pytest_collection_finish(session):
    found = [[str(item.path), sorted({mark.name for mark in item.iter_markers()})] for item in session.items]
    (session.config.invocation_params.dir / "found.json").write_text(json.dumps(found))
"""


def test_each_test_is_in_one_group_of_a_tier_and_in_no_second_of_its_environment(tmp_path: Path) -> None:
    (tmp_path / "collects.py").write_text(COLLECTS)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "collects", "-c", ROOT / "pyproject.toml"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, ROOT / "tests"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = {(path, tuple(marks)) for path, marks in json.loads((tmp_path / "found.json").read_text())}
    assert len(found) > 100
    for path, marks in found:
        groups = [group for group in GROUPS if group.tier and holds(group, Path(path), set(marks))]
        by_name = [group for group in GROUPS if group.needs and holds(group, Path(path), set(marks))]
        assert groups or by_name, f"{path}: no group has its tests of {marks}"
        assert len([group for group in groups if group.environment == "airflow"]) <= 1, f"{path}: {marks}: {groups}"


def holds(group: Group, path: Path, marks: set[str]) -> bool:
    """Whether a group runs a file's tests that have these marks."""
    inside = any(path.is_relative_to(ROOT / each) for each in group.paths.split())
    ignored = any(path == ROOT / each for each in group.ignored.split())
    return inside and not ignored and Expression.compile(group.selection).evaluate(lambda name, **_: name in marks)
