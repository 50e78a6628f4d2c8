"""Unusual but legal jobs: one file per job.

A file `test_NAME.py` defines the job as `ODD_JOB`, and tests what is special about it. `test_every_odd_job.py` renders
every ODD_JOB for every target, and sends the objects to a real API server. docs/testing/odd-jobs.md describes how to
add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.rendering import render
from stepset.targets.request import TARGET_NAMES
from tests.targets.making import Manifest, request


@dataclass(frozen=True)
class OddJob:
    """An unusual job.

    Args:
        job: the fields of the job file; without a program, `script: train.py`. A name and an image are added.
        expected: the expected result, in one sentence.
        source: where the rule is written: a project with version and file, or the page of the documentation.
        refused: target -> words of the error with which stepset refuses the job there. All other targets render it.
    """

    job: Mapping[str, Any]
    expected: str
    source: str
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that render the job."""
        return tuple(target for target in TARGET_NAMES if target not in self.refused)

    def render(self, target: str, **more: Any) -> list[Manifest]:
        """Returns the manifests; `more` are further arguments of `tests.targets.making.request`.

        Raises BadInputError if stepset refuses the job.
        """
        return render(request(**{**self.job, **more}), target)


WITHOUT_LAUNCHER: Mapping[str, str] = {
    target: f"framework: target {target} cannot start and stop pods of several kinds together"
    for target in ("statefulset", "job")
}
"""`refused` of a job whose framework has a launcher and nodes."""


def everywhere(words: str) -> dict[str, str]:
    """Returns `refused` of a job that no target accepts."""
    return dict.fromkeys(TARGET_NAMES, words)
