"""Filters lists of runs by job, phase, reason, labels and age. Contains only pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stepset.errors import BadInputError
from stepset.run_status import FailureKind, Phase, RunStatus

Requirement = Callable[[Mapping[str, str]], bool]
"""A function that returns whether labels satisfy one part of a selector."""

_PART = re.compile(r",(?![^(]*\))")
"""A comma between two parts of a selector. A comma within the parentheses of a set does not match."""
_KEY, _VALUE = r"(?P<key>[A-Za-z0-9][-\w./]*)", r"[-\w.]*"
_SET = re.compile(rf"{_KEY}\s+(?P<how>in|notin)\s+\((?P<values>\s*{_VALUE}\s*(,\s*{_VALUE}\s*)*)\)")
_EQUAL = re.compile(rf"{_KEY}\s*(?P<how>==|=|!=)\s*(?P<value>{_VALUE})")
_EXISTS = re.compile(rf"(?P<absent>!?)\s*{_KEY}")


WAITS = ("Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost")
"""The reasons that a run can have before it has finished."""


@dataclass(frozen=True)
class RunFilter:
    """Selects the runs that satisfy all given conditions.

    Args:
        phases: the phases of the runs. If empty, runs in any phase are selected.
        selector: a label selector in kubectl's syntax, such as `team=vision,!debug`, or a mapping of labels. If empty,
            runs are selected regardless of their labels.
        since: the earliest creation time of the runs, in seconds since the epoch. If None, runs of any age are
            selected.
        jobs: the names of the jobs of the runs. If empty, the runs of all jobs are selected.
        reasons: the reasons of the runs. If empty, runs are selected regardless of their reasons.
    """

    phases: frozenset[Phase] = frozenset()
    selector: str | Mapping[str, str] = ""
    since: float | None = None
    jobs: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()

    def select(self, runs: Sequence[RunStatus], place: str = "selector") -> list[RunStatus]:
        """Returns the selected runs in their given order.

        Raises:
            BadInputError: the selector is invalid. The message starts with `place`.
        """
        given = self.selector
        text = given if isinstance(given, str) else ",".join(f"{key}={value}" for key, value in given.items())
        required = requirements(text, place)
        return [
            run
            for run in runs
            if (not self.phases or run.phase in self.phases)
            and (not self.jobs or run.job in self.jobs)
            and (not self.reasons or run.reason in self.reasons)
            and (self.since is None or run.created >= self.since)
            and all(holds(run.labels) for holds in required)
        ]


def phases_of(words: Sequence[str], place: str = "phase") -> frozenset[Phase]:
    """Returns the phases with these names. Ignores the case of the names.

    >>> sorted(phases_of(["failed,Lost"]))
    [<Phase.FAILED: 'Failed'>, <Phase.LOST: 'Lost'>]

    Raises:
        BadInputError: a name is not the name of a phase. The message starts with `place`.
    """
    known = {phase.value.lower(): phase for phase in Phase}
    kinds = {kind.value.lower() for kind in FailureKind} - known.keys()
    found = set()
    for word in _words(words):
        if word.lower() in kinds:
            instead = place.replace("phase", "reason")
            raise BadInputError(f"{place}: {word!r} is a reason of runs in the phase failed; give it as {instead}")
        if word.lower() not in known:
            raise BadInputError(f"{place}: {word!r} is not a phase; use {', '.join(known)}")
        found.add(known[word.lower()])
    return frozenset(found)


def reasons_of(words: Sequence[str], place: str = "reason") -> frozenset[str]:
    """Returns the reasons with these names. Ignores the case of the names.

    >>> sorted(reasons_of(["usererror,queued"]))
    ['Queued', 'UserError']

    Raises:
        BadInputError: a name is not the name of a reason. The message starts with `place`.
    """
    known = {reason.lower(): reason for reason in (*(kind.value for kind in FailureKind), *WAITS)}
    for word in _words(words):
        if word.lower() not in known:
            raise BadInputError(f"{place}: {word!r} is not a reason; use {', '.join(known.values())}")
    return frozenset(known[word.lower()] for word in _words(words))


def several(given: str | Sequence[str]) -> list[str]:
    """Returns a list for an argument that is one text or several texts."""
    return [given] if isinstance(given, str) else list(given)


def _words(texts: Sequence[str]) -> list[str]:
    """Returns the words of all texts. Commas separate the words of a text."""
    return [word.strip() for text in texts for word in text.split(",")]


def requirements(selector: str, place: str = "selector") -> list[Requirement]:
    """Returns the requirements of a label selector. Labels match if they satisfy every requirement.

    >>> [holds({"team": "vision"}) for holds in requirements("team in (vision, audio),team!=text,!debug,team")]
    [True, True, True, True]

    Raises:
        BadInputError: the selector is invalid. The message starts with `place`.

    Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    return [_requirement(part.strip(), selector, place) for part in _PART.split(selector)] if selector.strip() else []


def _requirement(part: str, selector: str, place: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _one_of(found["key"], values, wanted=found["how"] == "in")
    if found := _EQUAL.fullmatch(part):
        return _one_of(found["key"], frozenset({found["value"]}), wanted=found["how"] != "!=")
    if found := _EXISTS.fullmatch(part):
        key, absent = found["key"], bool(found["absent"])
        return lambda labels: (key in labels) is not absent
    raise BadInputError(f"{place}: {selector!r} is not a label selector; write it like team=vision,!debug")


def _one_of(key: str, values: frozenset[str], *, wanted: bool) -> Requirement:
    """Returns the requirement that the label `key` has one of the values.

    If `wanted` is False, the requirement is that the label has none of the values.
    """
    return lambda labels: (labels.get(key) in values) is wanted
