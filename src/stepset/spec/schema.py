"""The JSON Schema of the job file. `stepset schema` prints it for editors and other tools.

pydantic generates a schema from the models. This module adds the following:

- The short forms of fields.
- The type `number` for fields whose values are converted to strings.
- Rules that concern several fields.
"""

from __future__ import annotations

from typing import Any

from stepset.defaults import ENTRIES
from stepset.safe_names import LABEL_LIMIT
from stepset.spec.job import TrainingJob
from stepset.spec.names import DNS_1035
from stepset.spec.options import KINDS, MODELS

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_QUANTITY: Schema = {
    "description": "Kubernetes quantity, such as 4, 500m or 16Gi.",
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+|Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?$",
        },
        {"type": "number", "minimum": 0},
    ],
}
_DURATION: Schema = {
    "description": "Duration, such as 90s, 30m, 12h or 1d; a bare number is seconds.",
    "anyOf": [
        {"type": "string", "minLength": 1, "pattern": "^([0-9]+|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$"},
        {"type": "integer", "minimum": 1},
    ],
}
_LABEL: Schema = {"type": "string", "pattern": DNS_1035.pattern, "maxLength": LABEL_LIMIT}
_WORD: Schema = {"type": ["string", "number"]}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_ENV: Schema = {
    "propertyNames": {"pattern": "^[-._a-zA-Z][-._a-zA-Z0-9]*$"},
    "additionalProperties": {
        "anyOf": [
            _SCALAR,
            {"$ref": "#/$defs/EnvText"},
            {"$ref": "#/$defs/EnvSecret"},
            {"$ref": "#/$defs/EnvField"},
        ]
    },
    "type": "object",
}


def job_schema() -> Schema:
    """Returns the JSON Schema (draft 2020-12) of a job file's content."""
    schema = _simplified(TrainingJob.model_json_schema())
    defs, fields = schema["$defs"], schema["properties"]
    defs |= {"Quantity": _QUANTITY, "Duration": _DURATION, "Label": _LABEL}
    defs["EnvText"]["properties"]["value"] = _SCALAR
    defs["Resources"] = _resources(defs["Resources"])
    for model in MODELS.values():
        defs[model.__name__]["required"] = ["kind"]

    label, duration = ({"$ref": f"#/$defs/{name}"} for name in ("Label", "Duration"))
    _change(fields, "name", {"anyOf": [label, {"type": "null"}]})
    _change(fields, "framework", {"anyOf": [{"enum": list(KINDS)}, *fields["framework"].pop("oneOf")]}, default="torch")
    fields["procs_per_node"]["anyOf"].append({"type": "string", "pattern": "^0*[1-9][0-9]*$"})
    _change(fields, "agent", {"enum": ["auto", True, False, "true", "false"]})
    _change(fields, "command", {"type": ["array", "null"], "items": _WORD, "minItems": 1})
    _change(fields, "args", {"type": "array", "items": _WORD})
    _change(fields, "env", _ENV)
    for field in ("deadline", "ttl"):
        _change(fields, field, {"anyOf": [duration, {"type": "null"}]})
    _change(fields, "termination_grace_period", duration)
    _change(fields, "hang", {"anyOf": [{"enum": ["off", False]}, {"$ref": "#/$defs/HangTimes"}]})
    for field in ("after", "first"):
        _change(defs["HangTimes"]["properties"], field, duration)
    _change(defs["Role"]["properties"], "name", label)
    _change(defs["Role"]["properties"], "env", _ENV)
    for field in ("command", "args"):
        _change(defs["Role"]["properties"], field, {"type": "array", "items": _WORD})
    _change(defs["Restart"]["properties"], "lost_node_after", duration)
    _change(defs["Network"]["properties"], "peer_timeout", duration)
    _change(defs["Network"]["properties"], "subdomain", {"anyOf": [label, {"type": "null"}]})

    # A field without a description gets the description of the model that is the type of the field.
    for field in fields.values():
        if "description" not in field and "$ref" in field:
            field["description"] = defs[field["$ref"].removeprefix("#/$defs/")]["description"]
    return {
        "$schema": DIALECT,
        "title": "stepset job file",
        "description": schema["description"].split("\n\n", 1)[0],
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
        **_one_entry(),
        "$defs": defs,
    }


def _simplified(node: Any) -> Any:
    """Returns a schema without generated titles, unnecessary defaults and OpenAPI's `discriminator`."""
    if isinstance(node, list):
        return [_simplified(item) for item in node]
    if not isinstance(node, dict):
        return node
    noise = {"title", "discriminator"}
    if node.get("default", 0) is None or isinstance(node.get("default"), dict):
        noise.add("default")
    # The keys of `properties` and `$defs` are not keywords of JSON Schema, but names of fields and models.
    return {
        key: {name: _simplified(shape) for name, shape in value.items()}
        if key in ("properties", "$defs")
        else _simplified(value)
        for key, value in node.items()
        if key not in noise
    }


def _change(properties: Schema, name: str, shape: Schema, **more: Any) -> None:
    """Replaces the schema of a property. The description and the default of the property are kept."""
    kept = {key: properties[name][key] for key in ("description", "default") if key in properties[name]}
    properties[name] = {**kept, **shape, **more}


def _resources(long_form: Schema) -> Schema:
    """Returns the schema of the field for resources. The schema accepts both the short form and the long form."""
    quantity = {"$ref": "#/$defs/Quantity"}
    plain = {
        "cpu": quantity,
        "memory": quantity,
        "ephemeral-storage": quantity,
        "gpus": {**quantity, "description": "Number of GPUs (nvidia.com/gpu)."},
    }
    vendors = {"/": quantity}
    amounts = {
        "type": "object",
        "properties": plain,
        "patternProperties": {**vendors, "^hugepages-": quantity},
        "additionalProperties": False,
    }
    shm = {"anyOf": [quantity, {"type": "null"}]}
    apart = long_form["properties"]
    for name, shape in (("requests", amounts), ("limits", amounts), ("shm", shm)):
        _change(apart, name, shape)
    short = {
        "type": "object",
        "properties": {**plain, "shm": apart["shm"]},
        "patternProperties": vendors,
        "additionalProperties": False,
    }
    return {
        "description": long_form["description"],
        "anyOf": [short, {"type": "object", "properties": apart, "additionalProperties": False}],
    }


def _one_entry() -> Schema:
    """Returns the rule that a job has exactly one of script, module, command and function.

    A job may have none of these fields if its framework has its own programs.
    """

    def given(entry: str) -> Schema:
        return {"required": [entry], "properties": {entry: {"not": {"type": "null"}}}}

    kinds = [{"const": kind} for kind, model in MODELS.items() if not model.needs_program]
    forms = [form for kind in kinds for form in (kind, {"properties": {"kind": kind}, "type": "object"})]
    own_program = {
        "not": {"anyOf": [given(entry) for entry in ENTRIES]},
        "required": ["framework"],
        "properties": {"framework": {"anyOf": forms}},
    }
    return {"oneOf": [*(given(entry) for entry in ENTRIES), own_program]}
