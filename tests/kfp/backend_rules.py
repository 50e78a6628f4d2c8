"""What KFP 2.17.0 and Argo Workflows 4.0.5 do with the inputs of a task, for tests without a cluster.

The functions follow these sources (tags 2.17.0 of kubeflow/pipelines and v4.0.5 of argoproj/argo-workflows):

- `argo_replaced`: util/template/replace.go and simple_template.go; the caller is workflow/common/util.go
- `driver_parameters`: resolveInputParameter in backend/src/v2/driver/resolve.go
- `launcher_argument`: compileCmdAndArgs and getPlaceholders in backend/src/v2/component/launcher_v2.go
- `store_output`: uploadOutputArtifacts there, and KeyFromURI in backend/src/v2/objectstore/config.go
- `open_input`: fetchNonDefaultBuckets there, and ParseBucketConfigForArtifactURI in config.go
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

VARIABLES = {
    "workflow.name": "digits-x7k2p",
    "workflow.uid": "7d3c",
    "inputs.parameters.component": '{"executorLabel": "exec"}',
}
"""Some of the variables that are in scope of every task."""
_TAG = re.compile(r"\{\{(.*?)\}\}")
WORKSPACE = "/kfp-workspace"
_EXACT = {
    "{{$.pipeline_job_name}}": "run 1",
    "{{$.pipeline_job_resource_name}}": "digits-x7k2p",
    "{{$.pipeline_job_uuid}}": "2f8a",
    "{{$.pipeline_task_name}}": "train",
    "{{$.pipeline_task_uuid}}": "7",
    "{{$.pipeline_job_create_time_utc}}": "2026-11-26T00:00:00Z",
    "{{$.pipeline_job_schedule_time_utc}}": "2026-11-26T00:00:00Z",
}


class RefusedError(Exception):
    """Argo or KFP refuses the workflow."""


def arrived(task: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the executor input's parameters that a component gets.

    Args:
        task: a task of the compiled root DAG.
        parameters: the values of the pipeline's parameters.
    """
    spec = json.loads(argo_replaced(json.dumps(task, ensure_ascii=False)))
    argument = launcher_argument(driver_parameters(spec, parameters))
    executor_input = json.loads(argument)
    values: dict[str, Any] = executor_input["inputs"]["parameterValues"]
    return values


def argo_replaced(text: str) -> str:
    """Returns a JSON text that is the value of a parameter in a Workflow, after Argo has replaced its variables."""
    outer = json.dumps(text, ensure_ascii=False)
    replaced = _TAG.sub(_variable, outer)
    if "{{" in _TAG.sub("", outer):
        raise RefusedError("cannot find end tag")
    quoted = _go_quoted(json.loads(_valid(replaced)))  # the parameter is inserted into the next template
    return str(json.loads(_valid(f'"{quoted}"')))


def _variable(found: re.Match[str]) -> str:
    tag = found[1]
    if tag.startswith("="):
        raise RefusedError(f"Argo evaluates the expression {tag}")
    if (known := VARIABLES.get(tag.strip())) is not None:
        return _go_quoted(known)
    before, nested, inner = tag.rpartition("{{")
    if before and nested and inner in VARIABLES:
        return f"{{{{{before}{_go_quoted(VARIABLES[inner])}"
    return found[0]


def _go_quoted(text: str) -> str:
    """Returns what Go's strconv.Quote writes between the quotes.

    Python's categories stand for Go's unicode.IsPrint, so characters assigned since Go's tables may differ.
    """
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\v": "\\v"}

    def quoted(character: str) -> str:
        if character in named:
            return named[character]
        code = ord(character)
        if character == " " or unicodedata.category(character)[0] in "LMNPS":
            return character
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return "".join(map(quoted, text))


def _valid(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        raise RefusedError("the result was invalid JSON") from error
    return text


def driver_parameters(task: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the task's input parameters."""
    return {
        name: _driver_value(given, parameters) for name, given in task.get("inputs", {}).get("parameters", {}).items()
    }


def _driver_value(given: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    if "componentInputParameter" in given:
        return parameters[given["componentInputParameter"]]
    constant = given["runtimeValue"]["constant"]
    if not isinstance(constant, str):
        return constant
    if "{{$.workspace_path}}" in constant:
        return constant.replace("{{$.workspace_path}}", WORKSPACE)
    return _EXACT.get(constant, constant)


def launcher_input(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the executor input that the driver passes to the launcher."""
    values = MessageToDict(ParseDict(dict(parameters), Struct()))  # numbers become doubles
    return {"inputs": {"parameterValues": dict(sorted(values.items()))}}


def launcher_argument(parameters: Mapping[str, Any]) -> str:
    """Returns the executor input that the launcher passes to a component as `--executor_input`.

    The launcher replaces the placeholders in a random order. This function uses the order of `parameters`.
    """
    executor_input = launcher_input(parameters)
    text = json.dumps(executor_input, ensure_ascii=False)
    for name in parameters:
        value = executor_input["inputs"]["parameterValues"][name]
        text = text.replace(f"{{{{$.inputs.parameters['{name}']}}}}", _text(value))
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return json.dumps(value)


def store_output(uri: str, pipeline_run: str) -> None:
    """Raises RefusedError if the launcher fails a step because of the URI of an output artifact.

    Args:
        uri: the URI after the step.
        pipeline_run: the directory of the pipeline run in the object store, such as s3://bucket/digits/7d3c.
    """
    if not uri.startswith(("s3://", "gs://", "minio://")):
        return  # oci:// and unknown schemes are not uploaded
    if not uri.startswith(pipeline_run):
        raise RefusedError(f"URI {uri!r} does not have expected bucket prefix {pipeline_run!r}")
    if not uri.removeprefix(pipeline_run).lstrip("/"):
        raise RefusedError(f"URI {uri!r} has empty key")


def open_input(uri: str, pipeline_run: str) -> None:
    """Raises RefusedError if the launcher fails a step because of the URI of an input artifact."""
    if uri.startswith(("oci://", pipeline_run)):
        return
    found = re.search(r"(^[a-z][a-z0-9]+:///?)([^/?]+)(/[^?]*)?(\?.+)?$", uri)
    if found is None or found[1] not in ("gs://", "s3://", "minio://", "mem://"):
        raise RefusedError(f"parse bucket config failed: {uri!r}")
