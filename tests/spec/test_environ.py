"""Variables: a text, a key of a Secret, or a field of the pod."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset.spec.environ import EnvField, EnvSecret, EnvText


def variable(value: Any) -> Any:
    return parse_job({"script": "a.py", "env": {"A": value}}).env["A"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0.1", "0.1"),
        ("", ""),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        ({"value": "x"}, "x"),
        ({"value": 4}, "4"),
        ({"value": True}, "true"),
        ("$(PET_NNODES)", "$(PET_NNODES)"),
    ],
)
def test_a_bare_value_is_text(given: Any, text: str) -> None:
    assert variable(given) == EnvText(value=text)


def test_a_variable_can_refer_to_a_secret_or_a_field() -> None:
    assert variable({"secret": "hub", "key": "token"}) == EnvSecret(secret="hub", key="token")
    assert variable({"field": "status.hostIP"}) == EnvField(field="status.hostIP")


@pytest.mark.parametrize("given", [{"value": "4"}, {"secret": "hub", "key": "token"}, {"field": "status.hostIP"}])
def test_each_kind_can_override_a_reserved_name(given: dict[str, str]) -> None:
    assert variable(given).override is False
    assert variable({**given, "override": True}).override is True


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("1", "1"),
        ({"value": "1", "override": False}, "1"),
        ({"value": 1, "override": True}, {"value": "1", "override": True}),
        ({"secret": "s", "key": "k"}, {"secret": "s", "key": "k"}),
        ({"field": "f", "override": True}, {"field": "f", "override": True}),
    ],
)
def test_the_shortest_form_is_written(given: Any, written: Any) -> None:
    assert parse_job({"script": "a.py", "env": {"A": given}}).to_dict()["env"] == {"A": written}


@pytest.mark.parametrize("name", ["A", "_", "my.var", "my-var", "-x", ".x", "a1"])
def test_accepts_names_that_kubernetes_accepts(name: str) -> None:
    assert name in parse_job({"script": "a.py", "env": {name: "1"}}).env


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "A\n", "Ä"])
def test_rejects_invalid_names(name: str) -> None:
    with pytest.raises(BadInputError, match="is not a variable name"):
        parse_job({"script": "a.py", "env": {name: "1"}})


def test_an_empty_value_is_valid_unless_torchrun_would_read_it() -> None:
    assert variable("") == EnvText(value="")
    for name in ("PET_RDZV_ID", "PET_STANDALONE"):
        with pytest.raises(BadInputError, match=f"{name} is empty, which torchrun takes for a value; leave it out"):
            parse_job({"script": "a.py", "env": {name: ""}})


def test_the_order_of_variables_is_kept() -> None:
    env = {"B": "1", "A": "$(B)", "C": "$(A)"}
    assert list(parse_job({"script": "a.py", "env": env}).env) == ["B", "A", "C"]
