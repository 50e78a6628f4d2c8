"""A variable in the form of the Kubernetes API, in `env` of the job."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import container

SECRET, FIELD = "{secret: NAME, key: KEY}", "{field: PATH}"
CONFIG_MAP = (
    "the variable in pod_template, as {containers: [{name: node, env: [{name: NAME, valueFrom: {configMapKeyRef:"
    " {name: NAME, key: KEY}}}]}]}"
)
RESOURCE = (
    "the variable in pod_template, as {containers: [{name: node, env: [{name: NAME, valueFrom: {resourceFieldRef:"
    " {resource: limits.cpu}}}]}]}"
)
KEY_REF = {"name": "settings", "key": "lr"}
ODD_JOB = OddJob(
    job={"env": {"LR": {"valueFrom": {"configMapKeyRef": KEY_REF}}}},
    expected="The job is refused, with a remedy for this source; before, the remedy was a Secret or a field.",
    source="k8s.io/api v0.36 core/v1/types.go (EnvVarSource)",
    refused=everywhere(f"env.LR: valueFrom is not known here; write {CONFIG_MAP}"),
)


def refusal(variable: dict[str, Any]) -> str:
    with pytest.raises(BadInputError) as caught:
        ODD_JOB.render("jobset", env={"A": variable})
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ({"secretKeyRef": KEY_REF}, SECRET),
        ({"fieldRef": {"fieldPath": "status.hostIP"}}, FIELD),
        ({"configMapKeyRef": KEY_REF}, CONFIG_MAP),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, RESOURCE),
        ({}, f"{SECRET} or {FIELD}"),
    ],
)
def test_the_remedy_is_that_of_the_source(source: dict[str, Any], form: str) -> None:
    for name in ("valueFrom", "value_from", "valuefrom"):
        assert refusal({name: source}) == f"env.A: {name} is not known here; write {form}"
    for name in source:
        assert refusal(source) == f"env.A: {name} is not known here; write {form}"


@pytest.mark.parametrize("kind", ["configMapKeyRef", "resourceFieldRef", "fileKeyRef"])
def test_the_remedy_in_pod_template_works(kind: str) -> None:
    references = {
        "configMapKeyRef": KEY_REF,
        "resourceFieldRef": {"resource": "limits.cpu"},
        "fileKeyRef": {"volumeName": "v", "path": "a", "key": "b"},
    }
    row = {"name": "A", "valueFrom": {kind: references[kind]}}
    volumes = [{"name": "v", "emptyDir": {}}] if kind == "fileKeyRef" else []
    template = {"volumes": volumes, "containers": [{"name": "node", "env": [row]}]}
    assert row in container(ODD_JOB.render("jobset", env={}, pod_template=template))["env"]


@pytest.mark.parametrize(
    ("variable", "key", "meant"),
    [
        ({"secret": "hub", "secretKey": "token"}, "secretKey", "key"),
        ({"secret": "hub", "secret_key": "token"}, "secret_key", "key"),
        ({"secretName": "hub", "key": "token"}, "secretName", "secret"),
        ({"secret_name": "hub", "key": "token"}, "secret_name", "secret"),
        ({"fieldPath": "status.hostIP"}, "fieldPath", "field"),
    ],
)
def test_a_similar_key_is_suggested_by_its_meaning(variable: dict[str, str], key: str, meant: str) -> None:
    assert refusal(variable) == f"env.A: unknown key {key!r}; did you mean {meant!r}?"


@pytest.mark.parametrize("name", ["configMap", "config_map", "configMapName"])
def test_a_config_map_belongs_in_pod_template(name: str) -> None:
    assert refusal({name: "settings", "key": "lr"}) == f"env.A: {name} is not known here; write {CONFIG_MAP}"
