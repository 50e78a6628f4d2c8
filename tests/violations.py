"""Evidence that no later try of a test excuses, such as two live runs of one task.

A test that fails is run again (noxfile.py). If an assertion of this module or a test of security fails, the report of
the test contains the error as a violation, and tools/results.py counts the test as failed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import TypeVar

import pytest

Names = TypeVar("Names", bound=Collection[str])
SECURITY = "security"
"""The folder of tests in which each failed assertion is a violation."""


class ViolationError(AssertionError):
    """A promise was broken that holds on a machine of any speed."""


def at_most(number: int, runs: Names) -> Names:
    """Checks the number of runs that exist, or that were created, for a task. Returns their names.

    Args:
        number: the largest number that is right.
        runs: their names.

    Raises:
        ViolationError: there are more.
    """
    if len(runs) > number:
        raise ViolationError(f"{len(runs)} instead of at most {number}: {', '.join(runs)}")
    return runs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records a violation in the report of its test."""
    if call.excinfo is not None and (
        call.excinfo.errisinstance(ViolationError)
        or (call.when == "call" and SECURITY in item.path.parts and call.excinfo.errisinstance(AssertionError))
    ):
        item.user_properties.append(("violation", f"violation: {call.excinfo.value}"))
    return (yield)
