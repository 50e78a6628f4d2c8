"""The suite: groups in their order, those of a cluster beside the others; retries; the line that counts all tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from tools.groups import GROUPS, Group, everything, quick, remainder
from tools.suite import lanes_of, not_run, python_of, select, twin_of

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys
from pathlib import Path
from tools.groups import Group
from tools.suite import main
more = {"beside": {"cluster": 0}, "twin": {"twins": ("airflow",)}, "short": {"timeout": 5}}
more["needs"] = {"needs": ("NOT_SET_HERE", "PATH", "NOR_THIS")}
first = Group("one", "First", "one", workers=2 if "workers" in sys.argv else 1)
groups = (first, Group("two", "Second", "two", **more.get(sys.argv[-1], {})))
sys.exit(main(["one", "two"], groups, Path.cwd()))
"""
MARKS = "import pathlib, pytest, time\none, two = pytest.mark.one, pytest.mark.two\nran = pathlib.Path('ran')\n"
STEADY = "@one\ndef test_steady():\n    ran.open('a').write('steady ')\n"
UNSTEADY = (
    "@one\n@pytest.mark.retry(reason='slow disk')\ndef test_unsteady():\n"
    "    ran.open('a').write('unsteady ')\n    assert ran.read_text().count('un') == 2\n"
)
WRONG = "@one\ndef test_wrong():\n    ran.open('a').write('wrong ')\n    assert 0\n"
LATER = "@two\ndef test_later():\n    ran.open('a').write('later ')\n"


def run(directory: Path, *tests: str, second: str = "") -> tuple[int, list[str], str]:
    """Runs tests as a suite of two groups; returns its exit code, the tests in the order of their runs, its output.

    Args:
        directory: where the tests are written.
        tests: their texts.
        second: what the second group is: "beside": it needs a cluster, which exists; "twin": it has the same
            environment as the first and is run only with another Python; "short": its tests may take 5 seconds;
            "workers": an ordinary group, and the first one runs in two processes; "needs": it needs variables that are
            not set.
    """
    (directory / "test_it.py").write_text("\n\n".join((MARKS, *tests)))
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    one\n    two\n")
    # As a shell starts programs in the background: without SIGINT.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", RUN]
    command += [second] if second else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    suite = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = suite.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(suite.pid, signal.SIGKILL)  # a group's pytest, too: it would keep the output open
        pytest.fail(f"the suite has not ended after 300 s; its output: {suite.communicate()[0]}")
    ran = (directory / "ran").read_text().split() if (directory / "ran").exists() else []
    return suite.returncode, ran, output


def counts(output: str) -> str:
    """The last line of a suite's output without the time."""
    return re.sub(r" in \d+ min \d\d s$", "", output.splitlines()[-1])


def test_tests_that_pass_are_run_once_and_group_by_group(tmp_path: Path) -> None:
    code, ran, output = run(tmp_path, LATER, STEADY)
    assert (code, ran) == (0, ["steady", "later"])
    assert counts(output) == "2 passed, 0 skipped, 0 failed, 0 retried"


class TestRetry:
    def test_runs_a_marked_test_once_more_at_the_end_and_prints_its_reason(self, tmp_path: Path) -> None:
        code, ran, output = run(tmp_path, STEADY, UNSTEADY, LATER)
        assert (code, ran) == (0, ["steady", "unsteady", "later", "unsteady"])
        assert "retried: test_it.py::test_unsteady: slow disk" in output
        assert counts(output) == "3 passed, 0 skipped, 0 failed, 1 retried"

    def test_is_refused_to_a_test_without_the_mark(self, tmp_path: Path) -> None:
        code, ran, output = run(tmp_path, STEADY, WRONG, LATER)
        assert (code, ran) == (1, ["steady", "wrong", "later"])
        assert "retried: " not in output
        assert "\nfailed: one: test_it.py::test_wrong: assert 0\n" in output, "just before the line that counts"
        assert counts(output) == "2 passed, 0 skipped, 1 failed, 0 retried"

    def test_does_not_hide_the_failure_of_another_test(self, tmp_path: Path) -> None:
        code, ran, output = run(tmp_path, UNSTEADY, WRONG, LATER)
        assert (code, ran) == (1, ["unsteady", "wrong", "later", "unsteady"])
        assert counts(output) == "2 passed, 0 skipped, 1 failed, 1 retried"

    def test_that_fails_fails_the_suite(self, tmp_path: Path) -> None:
        marked = WRONG.replace("@one", "@one\n@pytest.mark.retry(reason='slow disk')")
        code, ran, output = run(tmp_path, marked, LATER)
        assert (code, ran) == (1, ["wrong", "later", "wrong"])
        assert counts(output) == "1 passed, 0 skipped, 1 failed, 1 retried"

    def test_that_is_skipped_fails_the_suite(self, tmp_path: Path) -> None:
        skips = UNSTEADY.replace(
            "    assert", "    if ran.read_text().count('un') == 2: pytest.skip('no disk')\n    assert"
        )
        code, ran, output = run(tmp_path, skips, LATER)
        assert (code, ran.count("unsteady")) == (1, 2)
        assert counts(output) == "1 passed, 0 skipped, 1 failed, 1 retried"

    def test_happens_at_most_three_times(self, tmp_path: Path) -> None:
        four = "@pytest.mark.parametrize('number', range(4))\n" + UNSTEADY.replace("test_unsteady()", "test_x(number)")
        code, ran, output = run(tmp_path, four.replace("count('un') == 2", "count('un') > 4"), LATER)
        assert (code, ran.count("unsteady")) == (1, 7)
        assert counts(output) == "4 passed, 0 skipped, 1 failed, 3 retried"


def test_very_many_failures_stop_the_suite(tmp_path: Path) -> None:
    many = "@one\n@pytest.mark.parametrize('number', range(25))\ndef test_wrong(number):\n    assert 0\n"
    code, ran, output = run(tmp_path, STEADY, many, LATER)
    assert (code, ran) == (1, ["steady"])
    assert counts(output) == "1 passed, 0 skipped, 25 failed, 0 retried"


def test_tests_that_cannot_be_collected_stop_the_suite(tmp_path: Path) -> None:
    code, ran, output = run(tmp_path, STEADY, "import nothing_like_this")
    assert (code, ran) == (2, [])
    assert output.count("nothing_like_this") < 5
    assert "\nstopped: one: pytest exited with code 2; the groups after it were not run\n" in output


def test_a_file_that_workers_cannot_collect_fails_the_suite_although_a_retry_passes(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_like_this")
    code, _, output = run(tmp_path, UNSTEADY, LATER, second="workers")
    assert code in (1, 2), "pytest stops at once, or runs the other files first"
    assert ", 0 failed, " not in counts(output)


def test_skipped_tests_are_counted(tmp_path: Path) -> None:
    skipped = "@one\ndef test_skipped():\n    pytest.skip('no GPU')\n"
    _, _, output = run(tmp_path, STEADY, skipped)
    assert counts(output) == "1 passed, 1 skipped, 0 failed, 0 retried"


class TestSelection:
    def test_without_arguments_is_every_test_once(self) -> None:
        assert select([], GROUPS) == select(["--all"], GROUPS) == everything(GROUPS)

    def test_of_the_remainder_is_all_that_the_quick_groups_do_not_run(self) -> None:
        names = {group.name for group in everything(GROUPS)}
        assert {group.name for group in remainder(GROUPS)} == names - {group.name for group in quick(GROUPS)}
        assert all("not smoke" in group.marks for group in remainder(GROUPS) if group.environment == "airflow")

    def test_of_the_quick_groups_needs_no_cluster_and_lists_the_others(self) -> None:
        selected = select(["--quick"], GROUPS)
        assert all(group.cluster is None for group in selected)
        listed = not_run(GROUPS, selected)
        assert "make test-all" in listed
        assert all(group.title in listed for group in everything(GROUPS) if group not in selected)


def test_groups_of_different_clusters_run_beside_each_other_and_a_group_alone_has_the_one_that_is_up() -> None:
    none, first, second = (Group(f"{cluster}", "", "", cluster=cluster) for cluster in (None, 0, 1))
    assert lanes_of([none, second, first, none]) == [([none, none], 0), ([first], 0), ([second], 1)]
    assert lanes_of([second]) == [([second], 0)]
    assert lanes_of([none, second]) == [([none], 0), ([second], 0)]


@pytest.mark.parametrize("group", [group for group in GROUPS if group.workers > 1], ids=lambda group: group.name)
def test_the_environment_of_a_group_with_several_workers_has_xdist(group: Group) -> None:
    lock = {"oldest": "core", "newest": "core"}.get(group.environment, group.environment)
    assert "\npytest-xdist==" in (ROOT / "locks" / f"{lock}.txt").read_text()


def test_a_group_whose_python_another_environment_has_is_skipped_with_one_line(tmp_path: Path) -> None:
    code, ran, output = run(tmp_path, STEADY, LATER, second="twin")
    assert (code, ran) == (0, ["steady"])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"skipped: .venvs/airflow has Python {version} too, and runs these tests\n" in output


def test_a_group_that_needs_variables_is_skipped_with_one_line_and_is_run_only_by_name(tmp_path: Path) -> None:
    code, ran, output = run(tmp_path, STEADY, LATER, second="needs")
    assert (code, ran) == (0, ["steady"])
    assert "skipped: NOT_SET_HERE and NOR_THIS not set (docs/testing/two.md)\n" in output
    needing = [group for group in GROUPS if group.needs]
    assert needing and not set(needing) & {*everything(GROUPS), *quick(GROUPS), *remainder(GROUPS)}
    assert select([group.name for group in needing], GROUPS) == needing
    assert all((ROOT / f"docs/testing/{group.name}.md").is_file() for group in needing), "the line names this file"


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


COLLECTS = """
import json
def pytest_collection_finish(session):
    found = [[str(item.path), sorted({mark.name for mark in item.iter_markers()})] for item in session.items]
    (session.config.invocation_params.dir / "found.json").write_text(json.dumps(found))
"""


def test_each_test_is_in_one_group_and_in_no_second_of_its_environment(tmp_path: Path) -> None:
    (tmp_path / "collects.py").write_text(COLLECTS)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "collects", "-c", ROOT / "pyproject.toml"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, ROOT / "tests"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) > 1000
    in_ci = [*quick(GROUPS), *remainder(GROUPS)]
    for path, marks in found:
        groups = [group for group in everything(GROUPS) if holds(group, Path(path), set(marks))]
        assert groups, f"{path}: no group has its tests of {marks}"
        assert any(holds(group, Path(path), set(marks)) for group in in_ci), f"{path}: CI does not run {marks}"
        assert len([group for group in groups if group.environment == "airflow"]) <= 1, f"{path}: {marks}: {groups}"


def holds(group: Group, path: Path, marks: set[str]) -> bool:
    """Whether a group runs a file's tests that have these marks."""
    inside = any(path.is_relative_to(ROOT / path_of_group) for path_of_group in (group.paths or "tests").split())
    left_out = bool(group.excluded) and path == ROOT / group.excluded
    return inside and not left_out and Expression.compile(group.marks).evaluate(lambda name, **_: name in marks)


def test_a_test_that_hangs_fails_and_the_others_are_run(tmp_path: Path) -> None:
    hangs = "@two\ndef test_hangs():\n    time.sleep(600)\n"
    code, ran, output = run(tmp_path, hangs, LATER, STEADY, second="short")
    assert (code, ran) == (1, ["steady", "later"])
    assert "Timeout (>5.0s) from pytest-timeout" in output
    assert counts(output) == "2 passed, 0 skipped, 1 failed, 0 retried"


@pytest.mark.cluster
class TestBesideEachOther:
    """Groups that need a cluster do not wait for the others."""

    def test_both_run_at_the_same_time_and_the_second_ones_output_is_printed_last(self, tmp_path: Path) -> None:
        code, ran, output = run(tmp_path, meets("one", "two"), meets("two", "one"), second="beside")
        assert (code, sorted(ran)) == (0, ["one", "two"])
        assert output.index("First") < output.index("Second")

    @pytest.mark.parametrize("wrong", ["one", "two"])
    def test_either_fails_the_suite(self, tmp_path: Path, wrong: str) -> None:
        code, _, _ = run(tmp_path, STEADY, LATER, WRONG.replace("@one", f"@{wrong}"), second="beside")
        assert code == 1

    def test_a_retry_waits_until_all_other_tests_have_ended(self, tmp_path: Path) -> None:
        slow = "@two\ndef test_slow():\n    time.sleep(3)\n    ran.open('a').write('slow ')\n"
        code, ran, _ = run(tmp_path, UNSTEADY, slow, second="beside")
        assert (code, ran) == (0, ["unsteady", "slow", "unsteady"])

    def test_when_the_first_must_stop_the_others_are_terminated(self, tmp_path: Path) -> None:
        endless = "@two\ndef test_endless():\n    pathlib.Path('two').touch()\n    time.sleep(600)\n"
        ends = f"@one\ndef test_ends():\n{AWAITS.format('two')}    pytest.exit('no more', returncode=3)\n"
        code, _, output = run(tmp_path, endless, ends, second="beside")
        assert code == 3
        assert "KeyboardInterrupt" in output


AWAITS = "    while not pathlib.Path({!r}).exists():\n        time.sleep(0.05)\n"


def meets(one: str, other: str) -> str:
    """A test of one group that ends when the test of the other group has started."""
    return (
        f"@{one}\ndef test_{one}():\n    pathlib.Path({one!r}).touch()\n{AWAITS.format(other)}"
        f"    ran.open('a').write('{one} ')\n"
    )
