"""Texts that Kubeflow Trainer changes, or with which it would never create the JobSet of a TrainJob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.spec.job import TrainingJob

# The controller stores the TrainingRuntime as YAML, and applies the JobSet as YAML. The YAML parser reads U+0085 as a
# line break, which becomes a space. It rejects the other characters of this pattern; only the controller's log shows
# the error (kubeflow/trainer v2.3.0 pkg/runtime/core/snapshot.go; go.yaml.in/yaml v2 readerc.go; tested). The pattern
# omits control characters below U+0020: the controller encodes objects as JSON first, which escapes them.
_UNREADABLE = re.compile("[\x7f-\x9f\ufffe\uffff]")
_NOT_IN_JOBSET = frozenset({"function", "code"})


def unreadable_texts(job: TrainingJob) -> Iterator[str]:
    """One line for each text of the job that Trainer's controller cannot read in a TrainJob or its runtime."""
    for field, text in _texts({key: value for key, value in job.to_dict().items() if key not in _NOT_IN_JOBSET}, ""):
        if found := _UNREADABLE.search(text):
            yield (
                f"{field}: contains the character U+{ord(found[0]):04X}, which Kubeflow Trainer cannot read; leave it"
                " out, or use target jobset"
            )


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yields every text below a field, with its path; an entry of a list has its name or its index."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            name = below.get("name") if isinstance(below, Mapping) else None
            yield from _texts(below, f"{field}[{index}]" if name is None else f"{field}.{name}")
