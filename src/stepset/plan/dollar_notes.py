"""Notes about `$$` in the commands and variables of a job, which Kubernetes and local runs replace by `$`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.spec.job import TrainingJob

_REPLACED = re.compile(r"\$\$(?!\()")
"""Matches `$$`, except in `$$(`, with which an author writes `$(` on purpose."""
_FIELDS = ("command", "args", "env", "framework", "network", "roles", "pod_template")
_OF_CONTAINERS = ("command", "args", "env")
_MOST = 5
"""The maximum number of places that a note names."""


def dollar_notes(job: TrainingJob) -> Iterator[str]:
    """Yields a note if a command, an argument or a variable of the job contains `$$`.

    The note contains no values, because they may be secret.

    >>> list(dollar_notes(TrainingJob(script="train.py", args=["--password", "pa$$word"])))[0].partition(";")[0]
    "args[1]: Kubernetes and local runs replace '$$' by '$'"
    """
    content = job.to_dict()
    places = [place for field in _FIELDS for place in _places(content.get(field), field)]
    if places:
        more = f" and {len(places) - _MOST} more" if len(places) > _MOST else ""
        yield (
            f"{', '.join(places[:_MOST])}{more}: Kubernetes and local runs replace '$$' by '$'; write '$$$$' for '$$'."
            " stepset explain shows what the process gets"
        )


def _places(value: Any, place: str) -> Iterator[str]:
    """Yields the path of each string that contains `$$`."""
    if isinstance(value, str):
        of_container = any(f".{field}" in place for field in _OF_CONTAINERS)
        if _REPLACED.search(value) and (of_container or not place.startswith("pod_template")):
            yield place.removesuffix(".value")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _places(inner, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _places(inner, f"{place}[{index}]")
