"""A function that is not Python."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"function": "def train(:\n    pass\n"},
    expected="The job is refused in one line with the line of the program.",
    source="Python 3 language reference, section 8.7",
    refused=everywhere("function: line 1: invalid syntax: 'def train(:'; correct the program"),
)
