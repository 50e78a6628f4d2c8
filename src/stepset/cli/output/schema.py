"""Creates the JSON Schema of the output that commands print with `-o json`.

The schema is derived from the Python types of the output.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

from stepset.cli.doctor.findings import Finding
from stepset.cli.output.documents import API_VERSION, TIME_OF_HANG, TIME_OF_RANK, TIMES
from stepset.cli.output.explanation import Explanation
from stepset.cli.output.failure_kinds import KindOfFailure
from stepset.cli.output.shipped_files import ShippedFiles
from stepset.hang import CollectiveCall, Hang, HangGroup, SlowRanks, StackFrame
from stepset.run_status import Failure, Progress, RankStatus, RunStatus, Waiting
from stepset.watch.stacks.model import (
    RankStacks,
    RunStacks,
    StackCollective,
    StackProcess,
    StackThread,
)

_FIELD = re.compile(r"^    (?:    )?([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)
_LAST_RESTART = (
    "the note that states the cause of the last restart of the run or one of its pods. It is empty if there was no"
    " restart, or if the cause is unknown."
)
_EXIT_CODE = "the exit code of `stepset run` and `stepset wait` for this run. It is null until the run has finished."
_HANG = (Hang, HangGroup, CollectiveCall, SlowRanks)
_STACKS = (RunStacks, RankStacks, StackProcess, StackThread, StackFrame, StackCollective)
_RUNS = {"type": "array", "items": {"$ref": "#/$defs/Run"}}


def output_schema() -> dict[str, Any]:
    """Returns the JSON Schema. Every JSON object that a command prints is valid against this schema."""
    from msgspec.json import schema_components

    _, components = schema_components(
        [RunStatus, RunStacks, Explanation, ShippedFiles, Finding, KindOfFailure], ref_template="#/$defs/{name}"
    )
    definitions = {name: _complete(schema) for name, schema in components.items()}
    for model in (RunStatus, RankStatus, Failure, Progress, Waiting, *_HANG, *_STACKS):
        _describe(definitions[model.__name__], model)
    run = definitions.pop("RunStatus")
    definitions.pop("ProgressPoint")  # documents have no `points`
    for name in ("points", "resumable", "function"):  # documents do not contain them either
        run["properties"].pop(name)
        run["required"].remove(name)
    time = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
    times = ((run, TIMES), (definitions["RankStatus"], (TIME_OF_RANK,)), (definitions["Hang"], (TIME_OF_HANG,)))
    for of_schema, names in times:
        for name in names:
            about = of_schema["properties"][name].get("description", "")
            of_schema["properties"][name] = {**time, "description": about.replace(", in seconds since the epoch", "")}
    stacks = definitions.pop("RunStacks")
    stacks["properties"]["at"] = {**time, "description": "when the stacks were read."}
    size = {"type": ["integer", "null"], "description": "The bytes of its files; only with list --disk-usage."}
    run["properties"]["size"] = size
    run["properties"]["last_restart"] = {"type": "string", "description": _LAST_RESTART}
    run["properties"]["exit_code"] = {"type": ["integer", "null"], "description": _EXIT_CODE}
    run["required"] += ["last_restart", "exit_code"]
    run["description"] = "A run at one moment. Times are RFC 3339 texts."
    documents = {
        "Run": run,
        "RunList": _object("The runs that list prints.", {"items": _RUNS}),
        "DeletedRuns": _object(
            "The runs that delete or prune has deleted, or with dry_run would delete.",
            {"dry_run": {"type": "boolean"}, "items": _RUNS},
        ),
        "Diagnosis": _object(
            "The checks of doctor.", {"items": {"type": "array", "items": {"$ref": "#/$defs/Finding"}}}
        ),
        "FailureKinds": _object(
            "The kinds of failure that failures prints.",
            {"items": {"type": "array", "items": {"$ref": "#/$defs/KindOfFailure"}}},
        ),
        **{name: definitions.pop(name) for name in ("Explanation", "ShippedFiles")},
        "Stacks": stacks,
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
    """Returns a copy of a schema with the fields apiVersion and kind added."""
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    return {
        **schema,
        "properties": {**head, **schema["properties"]},
        "required": [*head, *schema["required"]],
    }


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of a schema in which all fields are required and have no default values.

    The commands print every field.
    """
    if "description" in schema:  # Python before 3.13 keeps the indentation of docstrings
        schema = {**schema, "description": " ".join(schema["description"].split())}
    if "properties" not in schema:
        return {key: value for key, value in schema.items() if key != "title"}
    fields = {name: {k: v for k, v in field.items() if k != "default"} for name, field in schema["properties"].items()}
    kept = {key: value for key, value in schema.items() if key not in ("title", "properties", "required")}
    return {**kept, "properties": fields, "required": list(fields)}


def _describe(schema: dict[str, Any], model: type) -> None:
    """Adds descriptions from the docstring of a model to the schema of the model.

    The first paragraph of the docstring describes the model. The section `Args:` describes the fields.
    """
    about, _, args = (model.__doc__ or "").partition("Args:")
    schema["description"] = " ".join(about.split("\n\n")[0].split())
    found = list(_FIELD.finditer(args))
    for field, following in zip_longest(found, found[1:]):
        assert field is not None
        text = " ".join(args[field.end() : following.start() if following else len(args)].split())
        for name in field[1].split(", "):
            if name in schema["properties"]:
                schema["properties"][name]["description"] = text
