"""Detects strings that Kubeflow Trainer's controller cannot process correctly.

The controller changes some characters. If a string contains certain other characters, the controller does not create
the JobSet of the TrainJob.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.spec.job import TrainingJob

# Matches characters that the controller's YAML parser changes or rejects. The controller writes the TrainingRuntime and
# the JobSet as YAML. The parser replaces U+0085 with a space. The parser rejects the other characters of this pattern,
# and only the log of the controller contains the error (kubeflow/trainer v2.3.0 pkg/runtime/core/snapshot.go,
# go.yaml.in/yaml v2 readerc.go, tested). Control characters below U+0020 are allowed, because the controller first
# encodes the objects as JSON, in which these characters are escaped.
_UNREADABLE = re.compile("[\x7f-\x9f\ufffe\uffff]")
_NOT_IN_JOBSET = frozenset({"function", "code"})


def unreadable_texts(job: TrainingJob) -> Iterator[str]:
    """Yields one line for each string of a job that Trainer's controller cannot process."""
    for field, text in _texts(_shown(job.to_dict()), ""):
        if found := _UNREADABLE.search(text):
            yield (
                f"{field}: contains the character U+{ord(found[0]):04X}, which Kubeflow Trainer cannot read; leave it"
                " out, or use target jobset"
            )


def _shown(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a job that are copied to the JobSet. `code` is included only if it is a volume."""
    return {key: value for key, value in job.items() if key not in _NOT_IN_JOBSET or isinstance(value, Mapping)}


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yields every string in the value of a field, together with the path of the string.

    The path contains the names of list entries. If an entry has no name, the path contains the index of the entry.
    """
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            name = below.get("name") if isinstance(below, Mapping) else None
            yield from _texts(below, f"{field}[{index}]" if name is None else f"{field}.{name}")
