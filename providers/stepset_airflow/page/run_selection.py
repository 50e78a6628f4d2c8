"""Defines RunSelection, which selects the runs for the page with the list of runs."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_SIZE = 50
"""Maximum number of runs on one page of the list."""
MAX_TEXT = 200
"""Maximum number of characters of a search string."""
MAX_DAYS = 3650
MAX_PAGE = 1_000_000


@dataclass(frozen=True)
class RunSelection:
    """The filters and the page number of the list of runs. By default, the first page of all runs is selected.

    Args:
        text: a search string. A run is selected if the string occurs in the id of the DAG, in the id of the DAG run, in
            the id of the task, or in the name of the run. The search is not case-sensitive.
        phase: the phase of the run. If `phase` is empty, runs of all phases are selected.
        days: the maximum number of days since the last update of the run. None means no limit.
        page: the number of the page. The first page is 1.
    """

    text: str = ""
    phase: str = ""
    days: int | None = None
    page: int = 1
