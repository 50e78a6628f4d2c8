"""What became of the tests: reads the reports of the groups, prints each failed and each unsteady test, and counts.

A group of noxfile.py has one JUnit report for each call of pytest: the first one for all tests, the others for tests
that had failed until then. A test that fails and passes later is *unsteady*: it does not fail the run, unless there are
more than ten. A *violation* is evidence that no later try excuses, such as two live runs of one task
(tests/violations.py): its test has failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

DIRECTORY = Path(os.environ.get("STEPSET_REPORTS") or Path(__file__).resolve().parents[1] / "build/tests")
"""The directory of the reports, GROUP/NUMBER.xml. They contain what a failed test printed, and its cluster's state."""
MOST_UNSTEADY = 10
"""The largest number of unsteady tests of a run."""
VIOLATION = "violation"
"""The property of a test in a report that contains a violation."""


@dataclass(frozen=True)
class Report:
    """One call of pytest: the tests by their outcome. `failed` and `violations` contain the first line of an error."""

    passed: frozenset[str]
    skipped: frozenset[str]
    failed: Mapping[str, str]
    violations: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """The tests of a group by their final outcome, with the first line of their first error."""

    passed: frozenset[str]
    skipped: frozenset[str]
    failed: Mapping[str, str]
    unsteady: Mapping[str, str]


def read(path: Path) -> Report:
    """Reads a JUnit report.

    Raises:
        OSError, xml.etree.ElementTree.ParseError: pytest could not write the report.
    """
    cases: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        # A test whose body and whose teardown fail has two elements.
        cases.setdefault("::".join(filter(None, (case.get("classname"), case.get("name")))), []).append(case)
    failed = {name: text for name, found in cases.items() if (text := _first(_errors(found))) is not None}
    violations = {name: text for name, found in cases.items() if (text := _first(_violations(found))) is not None}
    skipped = {name for name, found in cases.items() if any(each.find("skipped") is not None for each in found)}
    return Report(
        frozenset(cases.keys() - failed.keys() - skipped), frozenset(skipped - failed.keys()), failed, violations
    )


def outcome_of(reports: Sequence[Report]) -> Outcome:
    """Returns the outcome of a group: a test has passed if it passed in its last try and there is no violation.

    Args:
        reports: the first report, and those of the further tries of the tests that had failed.
    """
    first, *later = reports
    errors = {name: error for report in reversed(reports) for name, error in report.failed.items()}
    violations = {name: error for report in reversed(reports) for name, error in report.violations.items()}
    recovered = {name for report in later for name in report.passed}
    unsteady = {name: error for name, error in errors.items() if name in recovered and name not in violations}
    failed = {name: error for name, error in errors.items() if name not in unsteady} | violations
    passed = (first.passed | recovered) - failed.keys()
    return Outcome(passed, first.skipped, failed, unsteady)


def main(directory: Path = DIRECTORY) -> int:
    """Prints the last lines of a run. Returns 1 if a test failed, or if there are too many unsteady tests."""
    groups = {path.parent.name: path for path in sorted(directory.glob("*/1.xml"))}
    outcomes = {name: outcome_of([read(each) for each in _reports(path.parent)]) for name, path in groups.items()}
    passed, skipped, failed, unsteady = (
        sum(len(getattr(outcome, kind)) for outcome in outcomes.values())
        for kind in ("passed", "skipped", "failed", "unsteady")
    )
    print()
    for kind in ("unsteady", "failed"):
        for name, outcome in outcomes.items():
            for test, error in getattr(outcome, kind).items():
                print(f"{kind}: {name}: {test}: {error}")
    if unsteady > MOST_UNSTEADY:
        print(f"failed: {unsteady} tests are unsteady, more than {MOST_UNSTEADY}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or unsteady > MOST_UNSTEADY else 0


def _reports(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.xml"), key=lambda path: int(path.stem))


def _errors(cases: Iterable[ElementTree.Element]) -> list[str | None]:
    return [each.get("message") for case in cases for each in case if each.tag in ("failure", "error")]


def _violations(cases: Iterable[ElementTree.Element]) -> list[str | None]:
    return [each.get("value") for case in cases for each in case.iter("property") if each.get("name") == VIOLATION]


def _first(texts: Sequence[str | None]) -> str | None:
    """Returns the first line of the first text; None if there is no text."""
    lines = [(text or "").strip().splitlines() for text in texts]
    return next((found[0] if found else "" for found in lines), None)


if __name__ == "__main__":
    sys.exit(main())
