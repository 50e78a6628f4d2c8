"""The error for a value that is no mapping or list contains a value that the field accepts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset.spec.base import JobModel
from stepset.spec.parts import Scheduling

STRUCTURED = [
    *((name,) for name, field in parse_job({"script": "a.py"}) if isinstance(field, (dict, list, JobModel))),
    *(("scheduling", name) for name, field in Scheduling() if isinstance(field, (dict, list, JobModel))),
    ("resources_per_node", "limits"),
    ("framework", "elastic"),
    ("framework", "elastic", "rdzv_conf"),
]
"""The paths of the fields whose values are mappings or lists."""


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Fields of a job in which the field with this path has a value."""
    for name in reversed(path):
        value = {name: value}
    if len(path) > 1 and path[0] == "framework":
        value["framework"]["kind"] = "torch"
    return {"script": "train.py", "num_nodes": 2, **value}


@pytest.mark.parametrize("path", STRUCTURED, ids=".".join)
def test_a_number_in_place_of_a_mapping_or_a_list_is_answered_with_a_valid_value(path: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job(nested(path, 3))
    (problem,) = caught.value.problems
    form = problem[min(problem.find(bracket) for bracket in "[{" if bracket in problem) :]
    parse_job(nested(path, yaml.safe_load(form.replace("{...}", "{}"))))
