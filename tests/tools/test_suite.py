"""The suite: a test that fails has a second chance, by itself; those of a cluster run beside the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from tools.suite import GROUPS, Group, lanes_of, python_of, twin_of

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from suite import Group, main
more = {"beside": {"cluster": 0}, "twin": {"twins": ("airflow",)}}
groups = (Group("one", "First", "one"), Group("two", "Second", "two", **more.get(sys.argv[-1], {})))
sys.exit(main([], groups, Path.cwd()))
"""
MARKS = "import pathlib, pytest, time\none, two = pytest.mark.one, pytest.mark.two\nran = pathlib.Path('ran')\n"
STEADY = "@one\ndef test_steady():\n    ran.open('a').write('steady ')\n"
UNSTEADY = (
    "@one\ndef test_unsteady():\n    ran.open('a').write('unsteady ')\n    assert ran.read_text().count('un') == 2\n"
)
WRONG = "@one\ndef test_wrong():\n    ran.open('a').write('wrong ')\n    assert 0\n"
LATER = "@two\ndef test_later():\n    ran.open('a').write('later ')\n"


def run(directory: Path, *tests: str, second: str = "") -> tuple[int, list[str], str]:
    """Runs tests as a suite of two groups: (exit code, the tests in the order in which they ran, its output).

    Args:
        directory: where.
        tests: their texts.
        second: what the second group is: "beside", if it needs a cluster, which is there; "twin", if it has the same
            environment as the first and is to run only with another Python.
    """
    (directory / "test_it.py").write_text("\n\n".join((MARKS, *tests)))
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    one\n    two\n")
    # As a shell starts what runs in the background: without SIGINT.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", RUN, str(ROOT / "tools")]
    command += [second] if second else []
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    ran = (directory / "ran").read_text().split() if (directory / "ran").exists() else []
    return done.returncode, ran, done.stdout + done.stderr


def test_tests_that_pass_are_run_once_and_group_by_group(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, LATER, STEADY)
    assert (code, ran) == (0, ["steady", "later"])
    assert "unsteady" not in said


def test_one_that_passes_the_second_time_is_named_at_the_very_end_and_fails_nothing(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, STEADY, UNSTEADY, LATER)
    assert (code, ran) == (0, ["steady", "unsteady", "later", "unsteady"])
    assert said.splitlines()[-1] == "unsteady: test_it.py::test_unsteady"


def test_one_that_fails_twice_fails_the_suite_when_everything_else_has_run(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, STEADY, WRONG, LATER)
    assert (code, ran) == (1, ["steady", "wrong", "later", "wrong"])
    assert "unsteady" not in said


def test_beside_one_that_fails_twice_the_unsteady_one_is_named(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, UNSTEADY, WRONG, LATER)
    assert (code, ran) == (1, ["unsteady", "wrong", "later", "unsteady", "wrong"])
    assert [line for line in said.splitlines() if line.startswith("unsteady: ")] == [
        "unsteady: test_it.py::test_unsteady"
    ]


def test_many_that_fail_have_no_second_chance_and_the_next_group_is_not_run(tmp_path: Path) -> None:
    many = "@one\n@pytest.mark.parametrize('number', range(25))\ndef test_wrong(number):\n    assert 0\n"
    code, ran, _ = run(tmp_path, STEADY, many, LATER)
    assert (code, ran) == (1, ["steady"])


def test_what_cannot_even_be_collected_has_no_second_chance(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, STEADY, "import nothing_like_this")
    assert (code, ran) == (2, [])
    assert said.count("nothing_like_this") < 5


def test_groups_of_different_clusters_run_beside_each_other_and_a_group_alone_has_the_one_that_is_up() -> None:
    none, first, second = (Group(f"{cluster}", "", "", cluster=cluster) for cluster in (None, 0, 1))
    assert lanes_of([none, second, first, none]) == [([none, none], 0), ([first], 0), ([second], 1)]
    assert lanes_of([second]) == [([second], 0)]
    assert lanes_of([none, second]) == [([none], 0), ([second], 0)]


def test_a_group_whose_python_another_environment_has_is_skipped_with_one_line(tmp_path: Path) -> None:
    code, ran, said = run(tmp_path, STEADY, LATER, second="twin")
    assert (code, ran) == (0, ["steady"])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"skipped: .venvs/airflow has Python {version} too, and runs these tests\n" in said


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
    for path, marks in found:
        groups = [group for group in GROUPS if holds(group, Path(path), set(marks))]
        assert groups, f"{path}: no group has its tests of {marks}"
        assert len([group for group in groups if group.environment == "airflow"]) <= 1, f"{path}: {marks}: {groups}"


def holds(group: Group, path: Path, marks: set[str]) -> bool:
    """Whether a group runs a file's tests that have these marks."""
    inside = any(path.is_relative_to(ROOT / place) for place in (group.place or "tests").split())
    left_out = bool(group.without) and path == ROOT / group.without
    return inside and not left_out and Expression.compile(group.marks).evaluate(lambda name, **_: name in marks)


@pytest.mark.cluster
class TestBesideEachOther:
    """Groups that need a cluster do not wait for the others."""

    def test_both_run_at_the_same_time_and_the_clusters_are_told_of_at_the_end(self, tmp_path: Path) -> None:
        code, ran, said = run(tmp_path, meets("one", "two"), meets("two", "one"), second="beside")
        assert (code, sorted(ran)) == (0, ["one", "two"])
        assert said.index("First") < said.index("Second")

    @pytest.mark.parametrize("wrong", ["one", "two"])
    def test_either_fails_the_suite(self, tmp_path: Path, wrong: str) -> None:
        code, _, _ = run(tmp_path, STEADY, LATER, WRONG.replace("@one", f"@{wrong}"), second="beside")
        assert code == 1

    def test_one_that_failed_waits_for_its_second_chance_until_the_others_have_run(self, tmp_path: Path) -> None:
        slow = "@two\ndef test_slow():\n    time.sleep(3)\n    ran.open('a').write('slow ')\n"
        code, ran, _ = run(tmp_path, UNSTEADY, slow, second="beside")
        assert (code, ran) == (0, ["unsteady", "slow", "unsteady"])

    def test_when_the_first_cannot_go_on_the_others_are_told_to_end(self, tmp_path: Path) -> None:
        endless = "@two\ndef test_endless():\n    pathlib.Path('two').touch()\n    time.sleep(600)\n"
        ends = f"@one\ndef test_ends():\n{AWAITS.format('two')}    pytest.exit('no more', returncode=3)\n"
        code, _, said = run(tmp_path, endless, ends, second="beside")
        assert code == 3
        assert "KeyboardInterrupt" in said


AWAITS = "    while not pathlib.Path({!r}).exists():\n        time.sleep(0.05)\n"


def meets(one: str, other: str) -> str:
    """A test of one group that ends when the other group's has begun."""
    return (
        f"@{one}\ndef test_{one}():\n    pathlib.Path({one!r}).touch()\n{AWAITS.format(other)}"
        f"    ran.open('a').write('{one} ')\n"
    )
