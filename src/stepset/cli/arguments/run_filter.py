"""The filters of `stepset list`: phase, labels and age. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stepset.errors import BadInputError
from stepset.run_status import Phase, RunStatus

Requirement = Callable[[Mapping[str, str]], bool]
"""Whether labels satisfy one part of a selector."""

_PART = re.compile(r",(?![^(]*\))")
"""A comma between two parts, not within the parentheses of a set."""
_KEY, _VALUE = r"(?P<key>[A-Za-z0-9][-\w./]*)", r"[-\w.]*"
_SET = re.compile(rf"{_KEY}\s+(?P<how>in|notin)\s+\((?P<values>\s*{_VALUE}\s*(,\s*{_VALUE}\s*)*)\)")
_EQUAL = re.compile(rf"{_KEY}\s*(?P<how>==|=|!=)\s*(?P<value>{_VALUE})")
_EXISTS = re.compile(rf"(?P<absent>!?)\s*{_KEY}")


@dataclass(frozen=True)
class RunFilter:
    """Selects runs.

    Args:
        phases: the phases of the runs; empty: all.
        selector: a label selector in kubectl's syntax, such as `team=vision,!debug`; empty: all.
        since: the earliest creation of the runs, in seconds since the epoch; None: no limit.
    """

    phases: frozenset[Phase] = frozenset()
    selector: str = ""
    since: float | None = None

    def select(self, runs: Sequence[RunStatus]) -> list[RunStatus]:
        """Returns the runs that the filter selects, in their order; BadInputError for an invalid selector."""
        required = requirements(self.selector)
        return [
            run
            for run in runs
            if (not self.phases or run.phase in self.phases)
            and (self.since is None or run.created >= self.since)
            and all(holds(run.labels) for holds in required)
        ]


def phases_of(words: Sequence[str]) -> frozenset[Phase]:
    """Returns the phases that `--phase` values name, in any case; BadInputError for an unknown one.

    >>> sorted(phases_of(["failed,Lost"]))
    [<Phase.FAILED: 'Failed'>, <Phase.LOST: 'Lost'>]
    """
    known = {phase.value.lower(): phase for phase in Phase}
    found = set()
    for word in (each.strip() for text in words for each in text.split(",")):
        if word.lower() not in known:
            raise BadInputError(f"--phase: {word!r} is not a phase; use {', '.join(known)}")
        found.add(known[word.lower()])
    return frozenset(found)


def requirements(selector: str) -> list[Requirement]:
    """Returns the requirements of a label selector, all of which must hold; BadInputError if it is invalid.

    >>> [holds({"team": "vision"}) for holds in requirements("team in (vision, audio),team!=text,!debug,team")]
    [True, True, True, True]

    Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    return [_requirement(part.strip(), selector) for part in _PART.split(selector)] if selector.strip() else []


def _requirement(part: str, selector: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _one_of(found["key"], values, wanted=found["how"] == "in")
    if found := _EQUAL.fullmatch(part):
        return _one_of(found["key"], frozenset({found["value"]}), wanted=found["how"] != "!=")
    if found := _EXISTS.fullmatch(part):
        key, absent = found["key"], bool(found["absent"])
        return lambda labels: (key in labels) is not absent
    raise BadInputError(f"--selector: {selector!r} is not a label selector; write it like team=vision,!debug")


def _one_of(key: str, values: frozenset[str], *, wanted: bool) -> Requirement:
    """Returns the requirement that a label has one of the values or, unless `wanted`, that it does not."""
    return lambda labels: (labels.get(key) in values) is wanted
