"""Reads the progress reports of training code, and states what stepset cannot use in these reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.run_status import Progress
from stepset.watch.bounded_json import finite, parse_json

EVENT_LIMIT = 256 * 1024
"""The maximum size of an agent's event and of a progress report, in bytes. Longer ones become ordinary lines."""
MAX_METRICS = 100
"""The maximum number of metrics of a run. If a run reports more metrics, only the first metrics are kept."""
TOO_MANY_METRICS = f"the run reports more than {MAX_METRICS} metrics; the others are not kept"
"""The note on a run that reports more metrics than are kept."""
SEVERAL_RANKS = "several ranks report progress, so the curve mixes their reports; report progress only in rank 0"
"""The note on an attempt in which several ranks report the same metric, or a step without metrics."""
UNREAD_REPORT = (
    'a line contains "stepset" but is no report: print(json.dumps({"stepset": {"step": 1}})) prints a report, in a line'
    " of its own"
)
"""The note on a line that resembles a report, such as a dict that was printed without `json.dumps`."""
PROGRESS_MARK = b'"stepset"'
_QUOTED = rb"""["']stepset["']\s*:\s*\{"""
# A number is required, because a line of source code in a traceback usually contains the name of a variable.
_RESEMBLES = re.compile(
    rb"(?<!\()\{\s*" + _QUOTED + rb"""\s*["']\w+["']\s*:\s*(?:\{\s*["'][^"']{1,200}["']\s*:\s*)?-?"""
    rb"(?:\d|nan|inf|NaN|Inf|tensor\()"
    rb"|^[ \t]{1,4}" + _QUOTED + rb"\s*$"
)  # the second form is a line of a report that json.dumps has indented
_FIELDS = {
    "step": "an integer below 2^63",
    "progress": "a number from 0 to 1",
    "metrics": "a mapping from names to numbers",
}
"""The fields of a report, and their values."""
_METRIC_NAME = 200
_SHOWN = 40
"""The maximum number of characters of a name or of a value in a note."""


@dataclass(frozen=True, slots=True)
class Report:
    """One progress report.

    Args:
        progress: the valid fields of the report.
        undefined: the metrics whose value is no finite number, and this value, such as `NaN`.
        problem: a sentence about the first field that stepset cannot use. Empty if there is no such field.
        source: the process that printed the report, as `LogLine.source`.
    """

    progress: Progress
    undefined: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    source: str = ""


def parse_report(text: bytes, source: str = "") -> Report | None:
    """Returns the report in a line `{"stepset": {...}}`, given without its line end. Returns None for other lines.

    `source` is the process that printed the line.

    >>> parse_report(b'{"stepset": {"step": 3, "progress": 0.5, "metrics": {"loss": 0.25}}}').progress
    Progress(step=3, progress=0.5, metrics={'loss': 0.25})
    """
    try:
        # Only lines that contain the mark and are UTF-8 are parsed. The agent has removed values of Secrets from them
        # (Redactor.reports).
        data = parse_json(text.decode()) if len(text) <= EVENT_LIMIT and PROGRESS_MARK in text else None
    except ValueError:  # not JSON, or not UTF-8
        return None
    if not isinstance(data, dict) or list(data) != ["stepset"] or not isinstance(data["stepset"], dict):
        return None
    report = data["stepset"]
    step, part, metrics = report.get("step"), finite(report.get("progress")), report.get("metrics")
    named = {k: v for k, v in metrics.items() if len(k) <= _METRIC_NAME} if isinstance(metrics, dict) else {}
    progress = Progress(
        step=step if isinstance(step, int) and finite(step) is not None else None,
        progress=None if part is None else min(max(part, 0.0), 1.0),
        metrics={name: number for name, value in named.items() if (number := finite(value)) is not None},
    )
    others = {name: value for name, value in named.items() if name not in progress.metrics and value is not None}
    undefined = {name: _shown(value) for name, value in others.items() if _is_number(value)}
    return Report(progress, undefined, _problem(report, progress, others), source)


def may_report(text: bytes) -> bool:
    """Returns whether a line of `text` may be a report or may resemble a report. The search is fast."""
    return b"stepset" in text and (b'stepset"' in text or b"stepset'" in text)


def resembles_report(text: bytes) -> bool:
    """Returns whether a line, which is no report, was probably meant to be a report.

    >>> resembles_report(b"{'stepset': {'step': 3}}"), resembles_report(b'rank 0: {"stepset": {"step": 3}}')
    (True, True)
    >>> resembles_report(b'json.dumps({"stepset": {"step": step}})')
    False
    """
    return len(text) <= EVENT_LIMIT and _RESEMBLES.search(text) is not None


def merge_report(old: Progress | None, report: Report) -> Progress:
    """Returns the progress `old`, updated with a report. Fields that the report omits keep their values.

    Metrics whose value is undefined are left out, because their earlier value is no longer valid.
    """
    old, new = old or Progress(), report.progress
    return Progress(
        step=old.step if new.step is None else new.step,
        progress=old.progress if new.progress is None else new.progress,
        metrics=_merged({name: n for name, n in old.metrics.items() if name not in report.undefined}, new.metrics),
    )


def undefined_note(metrics: Mapping[str, str], step: int | None) -> str:
    """Returns the note about the first metrics without a finite value.

    >>> undefined_note({"loss": "NaN"}, 4)
    'loss became NaN at step 4; a value that is not a finite number is a gap in the curve'
    """
    words = ", ".join(f"{name[:_SHOWN]} became {value}" for name, value in list(metrics.items())[:3])
    place = "" if step is None else f" at step {step}"
    return f"{words}{place}; a value that is not a finite number is a gap in the curve"


def _merged(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """Returns the newest value of each metric. Metrics beyond the limit are left out."""
    if len(old) + len(new) <= MAX_METRICS:
        return {**old, **new}
    names = list(dict.fromkeys((*old, *new)))[:MAX_METRICS]
    return {name: new.get(name, old.get(name, 0.0)) for name in names}


def _problem(report: Mapping[str, Any], progress: Progress, metrics: Mapping[str, Any]) -> str:
    """Returns a sentence about the first field of a report that stepset cannot use, or "".

    `metrics` are the metrics whose value is not used.
    """
    for name, value in report.items():
        if name not in _FIELDS:
            shown = name[:_SHOWN]
            return (
                f"unknown field {shown} in a progress report; the fields are {', '.join(_FIELDS)}. If {shown} is a"
                ' number of the training, put it into metrics: {"stepset": {"metrics": {'
                f"{_shown(name)}: 0.5}}}}}}"
            )
        used = isinstance(value, dict) if name == "metrics" else getattr(progress, name) is not None
        if value is not None and not used:
            return f"{name} is {_shown(value)} in a progress report; the value must be {_FIELDS[name]}"
    for name, value in metrics.items():
        if not _is_number(value):
            return f"the metric {name[:_SHOWN]} is {_shown(value)} in a progress report; the value must be a number"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_SHOWN]
