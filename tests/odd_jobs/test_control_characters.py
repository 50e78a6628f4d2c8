"""Characters that YAML does not allow, and one that it takes for a line break: Kubeflow Trainer reads texts as YAML.

The API server accepts them. Trainer's controller would never create the JobSet, or replace the line break by a space.
"""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob

ODD_JOB = OddJob(
    job={"args": ["--title", "a\x9fb"], "env": {"TITLE": "a\x85"}},
    expected="The command gets both texts unchanged; for a TrainJob they are refused, with their fields.",
    source="kubeflow/trainer v2.3.0 pkg/runtime/core/snapshot.go; go.yaml.in/yaml v2 readerc.go; executed",
    refused={"trainjob": "args[1]: contains the character U+009F, which Kubeflow Trainer cannot read"},
)


def test_each_text_is_reported_with_its_field() -> None:
    role = {"name": "board", "image": "x", "command": ["a\x7f"]}
    with pytest.raises(BadInputError) as error:
        ODD_JOB.render("trainjob", roles=[role], pod_template={"containers": [{"name": "node", "args": ["\uffff"]}]})
    fields = [line.partition(":")[0] for line in error.value.problems]
    assert fields == ["args[1]", "env.TITLE", "roles.board.command[0]", "pod_template.containers.node.args[0]"]


def test_characters_that_trainer_reads_are_accepted() -> None:
    assert ODD_JOB.render("trainjob", args=["\x01\x1f\xa0\u2028\ufeff\ue000"], env={})
