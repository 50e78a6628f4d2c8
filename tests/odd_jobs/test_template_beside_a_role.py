"""A pod template that sets the image, the command and variables of the container `node`, beside a role with its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import container, env

_NODE = {
    "name": "node",
    "image": "train:2",
    "command": ["torchrun", "train.py"],
    "args": ["--fast"],
    "imagePullPolicy": "Always",
    "env": [{"name": "A", "value": "template"}, {"name": "B", "value": "template"}],
}
_ROLE = {"name": "board", "image": "board:1", "command": ["tensorboard"], "args": ["--bind_all"], "env": {"A": "role"}}
ODD_JOB = OddJob(
    job={"command": ["train"], "roles": [_ROLE], "pod_template": {"containers": [_NODE]}},
    expected="The role keeps its image, command, args and variables; the template's other fields apply to it.",
    source="docs/targets.md, Settings without a field",
    refused=dict.fromkeys(("statefulset", "job"), "roles.board: target"),
)
EACH = pytest.mark.parametrize("target", ["jobset", "volcano"])


@EACH
def test_the_roles_own_settings_have_precedence(target: str) -> None:
    objects = ODD_JOB.render(target)
    board = container(objects, "board")
    assert (board["image"], board["command"], board["args"]) == ("board:1", ["tensorboard"], ["--bind_all"])
    assert {name: env(objects, "board")[name] for name in "AB"} == {"A": "role", "B": "template"}
    assert board["imagePullPolicy"] == "Always"
    node = container(objects)
    assert (node["image"], node["command"], node["args"]) == ("train:2", ["torchrun", "train.py"], ["--fast"])


@EACH
def test_a_role_without_an_image_gets_that_of_the_template(target: str) -> None:
    role = {"name": "board", "command": ["tensorboard"]}
    board = container(ODD_JOB.render(target, roles=[role]), "board")
    assert (board["image"], board["command"], "args" in board) == ("train:2", ["tensorboard"], False)


@EACH
@pytest.mark.parametrize(
    "containers",
    [
        [{"$patch": "replace"}, {"name": "node", "image": "x"}],
        [{"name": "node", "image": "x", "$patch": "replace"}],
        [{"name": "node", "env": None}],
        [{"name": "node", "env": [{"$patch": "replace"}, {"name": "C", "value": "1"}]}],
        [{"name": "node", "env": [{"name": "A", "$patch": "delete"}]}],
    ],
)
def test_directives_of_the_template_remove_nothing_from_a_role(target: str, containers: list[dict[str, Any]]) -> None:
    objects = ODD_JOB.render(target, pod_template={"containers": containers})
    board = container(objects, "board")
    assert (board["image"], board["command"], env(objects, "board")["A"]) == ("board:1", ["tensorboard"], "role")
