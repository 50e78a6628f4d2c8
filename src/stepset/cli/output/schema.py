"""The JSON Schema of the documents that commands print with `-o json`, made from the types of these documents. Pure."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

from stepset.cli.output.documents import API_VERSION, TIMES
from stepset.cli.output.explanation import Explanation
from stepset.cli.output.shipped_files import ShippedFiles
from stepset.run_status import Failure, Progress, RankStatus, RunStatus, Waiting

_FIELD = re.compile(r"^    (?:    )?([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)
_RUNS = {"type": "array", "items": {"$ref": "#/$defs/Run"}}


def output_schema() -> dict[str, Any]:
    """Returns a schema that every JSON document of the command line matches."""
    from msgspec.json import schema_components

    _, components = schema_components([RunStatus, Explanation, ShippedFiles], ref_template="#/$defs/{name}")
    definitions = {name: _complete(schema) for name, schema in components.items()}
    for model in (RunStatus, RankStatus, Failure, Progress, Waiting):
        _describe(definitions[model.__name__], model)
    run = definitions.pop("RunStatus")
    time = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
    for name in TIMES:
        run["properties"][name] = {**time, **_kept(run["properties"][name], "description")}
    size = {"type": ["integer", "null"], "description": "The bytes of its files; only with list --disk-usage."}
    run["properties"]["size"] = size
    run["description"] = "A run at one moment. Times are RFC 3339 texts."
    documents = {
        "Run": run,
        "RunList": _object("The runs that list prints.", {"items": _RUNS}),
        "DeletedRuns": _object(
            "The runs that delete or prune has deleted, or with dry_run would delete.",
            {"dry_run": {"type": "boolean"}, "items": _RUNS},
        ),
        **{name: definitions.pop(name) for name in ("Explanation", "ShippedFiles")},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON output of stepset's commands",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in documents],
        "$defs": {**{kind: _with_kind(schema, kind) for kind, schema in documents.items()}, **definitions},
    }


def _object(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "type": "object", "properties": properties, "required": list(properties)}


def _with_kind(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns the schema of a document: with its apiVersion and kind."""
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    return {
        **schema,
        "properties": {**head, **schema["properties"]},
        "required": [*head, *schema["required"]],
    }


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema whose fields are all required, because documents contain every field, without defaults."""
    if "properties" not in schema:
        return {key: value for key, value in schema.items() if key != "title"}
    fields = {name: {k: v for k, v in field.items() if k != "default"} for name, field in schema["properties"].items()}
    kept = {key: value for key, value in schema.items() if key not in ("title", "properties", "required")}
    return {**kept, "properties": fields, "required": list(fields)}


def _describe(schema: dict[str, Any], model: type) -> None:
    """Adds the descriptions of a model's docstring: its first paragraph, and those of its `Args:`."""
    about, _, args = (model.__doc__ or "").partition("Args:")
    schema["description"] = " ".join(about.split("\n\n")[0].split())
    found = list(_FIELD.finditer(args))
    for field, following in zip_longest(found, found[1:]):
        assert field is not None
        text = " ".join(args[field.end() : following.start() if following else len(args)].split())
        for name in field[1].split(", "):
            if name in schema["properties"]:
                schema["properties"][name]["description"] = text


def _kept(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {key: schema[key]} if key in schema else {}
