"""Combines the content of a job file with the fields of a call or of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MERGED = ("env", "labels")
"""The fields whose entries are added to the entries of the job. All other fields replace the field of the job."""


def merged(content: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a job file with the given fields.

    Entries of `env` and `labels` are added to the entries of the job. The value None removes an entry. If the job's
    value is not a mapping, this value is kept, and TrainingJob reports the error.

    >>> merged({"num_nodes": 1, "env": {"A": "1", "B": "2"}}, {"num_nodes": 2, "env": {"B": None, "C": "3"}})
    {'num_nodes': 2, 'env': {'A': '1', 'C': '3'}}
    """
    data = {**content, **fields}
    for field in MERGED:
        old, new = content.get(field), fields.get(field)
        if not isinstance(new, Mapping):
            continue
        old = {} if old is None else old
        removed = {key for key, value in new.items() if value is None}
        data[field] = {k: v for k, v in {**old, **new}.items() if k not in removed} if isinstance(old, Mapping) else old
    return data
