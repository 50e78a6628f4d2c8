"""`stepset schema`: a JSON Schema that accepts every valid job file and rejects what the models reject."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stepset import BadInputError, load_job
from stepset.spec.quantity import parse_duration, read_quantity
from stepset.spec.schema import job_schema
from tests.cli.conftest import Cli
from tests.strategies import job_files

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCHEMA = job_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def holds(job: Any) -> bool:
    return bool(VALIDATOR.is_valid(job))


def accepted(job: Any) -> bool:
    try:
        load_job(job)
    except BadInputError:
        return False
    return True


def test_it_is_a_schema_of_its_dialect(cli: Cli) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    result = cli("schema")
    assert (result.code, json.loads(result.out)) == (0, SCHEMA)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_the_example_job_files_match_it(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))) == []


def _objects(node: Any) -> list[dict[str, Any]]:
    """Yields every part of the schema that describes a mapping with named keys."""
    if isinstance(node, list):
        return [found for item in node for found in _objects(item)]
    if not isinstance(node, dict):
        return []
    found = [node] if node.get("type") == "object" and "properties" in node else []
    return found + [more for value in node.values() for more in _objects(value)]


def test_every_mapping_with_named_keys_rejects_unknown_keys() -> None:
    parts = [part for part in _objects(SCHEMA) if set(part["properties"]) != {"kind"} or "description" in part]
    assert len(parts) > 15
    assert all(part["additionalProperties"] is False for part in parts)


def test_every_field_has_the_description_of_the_models() -> None:
    missing = [name for name, field in SCHEMA["properties"].items() if not field.get("description")]
    assert set(missing) <= {"labels", "annotations"}
    assert SCHEMA["properties"]["num_nodes"]["description"] == "The number of pods that train."
    assert SCHEMA["$defs"]["Torch"]["properties"]["launcher"]["description"].startswith("What starts the ranks")


# Short forms, and values that the models reject. `script: a.py` is added if no entry is given.
FORMS: list[dict[str, Any]] = [
    {},
    {"framework": "torch"},
    {"framework": {"kind": "torch", "elastic": {"min_nodes": 1}}},
    {"framework": {"launcher": "none"}},
    {"framework": {"kind": "torch", "lancher": "none"}},
    {"framework": "pytorch"},
    {"framework": {"kind": "jax", "launcher": "none"}},
    {"env": {"A": "text", "B": 1, "C": 0.5, "D": True, "E": {"value": 4, "override": True}}},
    {"env": {"A": {"secret": "s", "key": "k"}, "B": {"field": "status.hostIP"}}},
    {"env": {"A": {"secret": "s"}}},
    {"env": {"A": ["x"]}},
    {"env": {"1A": "x"}},
    {"env": ["A=1"]},
    {"resources_per_node": {"cpu": 4, "memory": "16Gi", "gpus": 2, "shm": "8Gi", "vendor.example/nic": "1"}},
    {"resources_per_node": {"requests": {"cpu": "500m"}, "limits": {"cpu": 1, "hugepages-2Mi": "4Mi"}}},
    {"resources_per_node": {"gpu": 1}},
    {"resources_per_node": {"cpu": "four"}},
    {"resources_per_node": {"cpu": -1}},
    {"resources_per_node": {"requests": {"nonsense": 1}}},
    {"procs_per_node": "gpu", "resources_per_node": {"gpus": 1}},
    {"procs_per_node": 0},
    {"procs_per_node": "all"},
    {"num_nodes": 0},
    {"num_nodes": 1.5},
    {"num_nodes": True},
    {"name": "digits-2"},
    {"name": "2digits"},
    {"name": "Digits"},
    {"name": None},
    {"args": ["--epochs", 3, 0.5]},
    {"args": "--epochs 3"},
    {"args": [True]},
    {"deadline": "1d12h"},
    {"deadline": 90},
    {"deadline": "soon"},
    {"deadline": 0},
    {"deadline": None},
    {"checkpoint_dir": "/ckpt"},
    {"checkpoint_dir": "ckpt"},
    {"storage": [{"path": "/data", "claim": "c", "read_only": True}]},
    {"storage": [{"path": "/data"}]},
    {"storage": {"path": "/data", "claim": "c"}},
    {"roles": [{"name": "prepare", "before": True, "command": ["sh", "-c", 1], "args": [2]}]},
    {"roles": [{"name": "Prepare", "command": ["true"]}]},
    {"roles": [{"command": ["true"]}]},
    {"restart": {"max_restarts": 3, "user_errors": "fail", "lost_node_after": "90s"}},
    {"restart": {"max_restarts": -1}},
    {"restart": {"user_errors": "maybe"}},
    {"network": {"port": 29501, "subdomain": "digits", "peer_timeout": "5m"}},
    {"network": {"port": 70000}},
    {"network": {"subdomain": "Digits"}},
    {"scheduling": {"gang": "kueue", "queue_name": "a", "tolerations": [{"key": "x"}], "topology": {"exclusive": "z"}}},
    {"scheduling": {"gang": "all"}},
    {"agent": "auto"},
    {"agent": False},
    {"agent": "maybe"},
    {"pod_template": {"spec": {"hostNetwork": True}}},
    {"labels": {"a": "b"}},
    {"labels": {"a": 1}},
    {"num_node": 2},
    {"module": "a.b"},
    {"module": "a.b", "script": None},
    {"module": "a.b", "script": "a.py"},
    {"command": ["./a", 1]},
    {"command": []},
    {"function": "print(1)"},
    {"script": None},
    {"script": None, "framework": "torchtune"},
    {"script": None, "framework": {"kind": "torchtune", "model": "llama3_2/1B"}},
    {"script": None, "framework": {"kind": "torch"}},
]


@pytest.mark.parametrize("form", FORMS, ids=json.dumps)
def test_it_accepts_exactly_what_the_models_accept(form: dict[str, Any]) -> None:
    job = form if {"script", "module", "command", "function"} & set(form) else {"script": "a.py", **form}
    assert holds(job) == accepted(job)


def test_the_table_contains_valid_and_invalid_jobs() -> None:
    kinds = [accepted({"script": "a.py", **form}) for form in FORMS]
    assert kinds.count(True) > 20
    assert kinds.count(False) > 20


@settings(deadline=None, derandomize=True, max_examples=100)
@given(job_files())
def test_any_valid_job_file_matches_it_before_and_after_a_round_trip(file: dict[str, Any]) -> None:
    job = load_job(file)
    assert list(VALIDATOR.iter_errors(file)) == []
    assert list(VALIDATOR.iter_errors(job.to_dict())) == []


@pytest.mark.parametrize("data", ["script: a.py", ["script"], None, 3])
def test_rejects_anything_but_a_mapping(data: Any) -> None:
    assert not holds(data)


def _pattern(name: str) -> str:
    pattern: str = SCHEMA["$defs"][name]["anyOf"][0]["pattern"]
    return pattern


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.one_of(st.from_regex(_pattern("Quantity"), fullmatch=True), st.text("0123456789.eEkKmMiGn+", max_size=6)))
def test_quantities_match_as_the_models_accept_them(text: str) -> None:
    try:
        read_quantity(text)
    except ValueError as error:
        # The pattern cannot express the largest quantity.
        assert "too large for a quantity" in str(error) or not re.search(_pattern("Quantity"), text)
    else:
        assert re.search(_pattern("Quantity"), text)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.one_of(st.from_regex(_pattern("Duration"), fullmatch=True), st.text("0123456789dhms ", max_size=6)))
def test_durations_match_as_the_models_accept_them(text: str) -> None:
    shape = bool(text) and bool(re.search(_pattern("Duration"), text)) and not text.endswith("\n")
    try:
        parse_duration(text)
    except ValueError as error:
        # The pattern cannot express the longest duration.
        assert "positive" in str(error) or "too long" in str(error) or not shape
    else:
        assert shape or text != text.strip()


def test_the_docstring_below_a_field_is_its_description_in_every_model() -> None:
    assert SCHEMA["properties"]["num_nodes"]["description"] == "The number of pods that train."
    storage = SCHEMA["$defs"]["Storage"]["properties"]
    assert storage["read_only"]["description"] == "Whether the volume is mounted read-only."
    topology = SCHEMA["$defs"]["Scheduling"]["properties"]["topology"]
    assert topology["description"] == "The placement of the pods relative to each other."
