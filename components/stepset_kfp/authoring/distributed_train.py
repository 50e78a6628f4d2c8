"""The factory `distributed_train`, which creates a task of the component in training/distributed_train/component.py.

When a pipeline is compiled, the factory packs files and checks the inputs that are constants.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.sources import read_sources
from stepset.sources.archive import largest
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.load import parse_job, read_job_file
from stepset.spec.scalars import Scalar
from stepset_kfp.job_inputs import (
    LIST_FIELDS,
    MAPPING_FIELDS,
    NOT_GIVEN,
    SOURCE,
    TEXT_FIELDS,
    WHOLE,
    as_text,
    job_mapping,
)
from stepset_kfp.options import check_options
from stepset_kfp.packing import ARGUMENT, pack, pack_script

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

_MAX_EXACT = 2**53
"""Integers up to this one are exact as doubles."""
_log = logging.getLogger(__name__)


class Inputs(TypedDict, total=False):
    """Inputs of `distributed_train`; docs/job-file.md describes the fields, the component's docstring the others.

    Each value may also be an output of another task, or a parameter of the pipeline.
    """

    job: Any
    name: Any
    framework: Any
    num_nodes: Any
    procs_per_node: Any
    image: Any
    script: Any
    module: Any
    command: Any
    function: Any
    args: Any
    code: Any
    env: Any
    resources_per_node: Any
    shm: Any
    storage: Any
    checkpoint_dir: Any
    roles: Any
    restart: Any
    deadline: Any
    ttl: Any
    scheduling: Any
    queue_name: Any
    network: Any
    service_account: Any
    security: Any
    labels: Any
    annotations: Any
    pod_template: Any
    agent: Any
    backend: Any
    target: Any
    namespace: Any
    log_ranks: Any
    on_interrupt: Any
    admission_timeout: Any
    startup_timeout: Any


def distributed_train(
    *, base_dir: str | Path | None = None, caching: bool = False, **inputs: Unpack[Inputs]
) -> PipelineTask:
    """Returns a task that runs a distributed training to its end.

    `script` and `code` are read when the pipeline is compiled and become part of it.

    Args:
        base_dir: the directory that paths are relative to; default: the directory of the caller's file.
        caching: whether KFP may reuse an earlier run's outputs. Default: no, because the cache's key does not contain
            resources, variables, secrets, or the content of an image tag.
        inputs: the component's inputs. `job` may be a job file's path, a mapping or a TrainingJob.

    Returns:
        The task; its outputs are model, metrics, report, result and run.

    Raises:
        BadInputError: an unknown input, a file that cannot be read or is too large, or a job that is not valid.
    """
    from stepset_kfp.training.distributed_train.component import distributed_train as component

    given: dict[str, Any] = dict(inputs)
    if unknown := sorted(set(given) - set(Inputs.__annotations__)):
        raise BadInputError(f"{unknown[0]}: no such input; {nearest(unknown[0], Inputs.__annotations__)}")
    base = Path(base_dir) if base_dir is not None else Path(sys._getframe(1).f_code.co_filename).parent
    arguments = prepare(given, base.resolve())
    task = component(**arguments)
    task.set_caching_options(caching)
    return task


def prepare(given: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Returns the component's arguments; raises like `distributed_train`. Inputs that are None are ignored."""
    inputs = {name: value for name, value in given.items() if value is not None}
    nodes = inputs.get("num_nodes")
    if isinstance(nodes, int) and nodes == NOT_GIVEN:
        raise BadInputError(f"num_nodes: {nodes} is too small; give 1 or more")
    base = _take_job(inputs, base)
    constant = not any(map(has_runtime_value, inputs.values()))
    texts = {
        name: as_text(value) for name, value in inputs.items() if name in TEXT_FIELDS and not has_runtime_value(value)
    }
    arguments = {**inputs, **texts}
    for name in ("args", "command"):
        if isinstance(arguments.get(name), (list, tuple)):
            arguments[name] = [_word(item) for item in arguments[name]]
    for name in ("job", *LIST_FIELDS, *MAPPING_FIELDS):
        if name in arguments:
            arguments[name] = _mark_numbers(arguments[name], nested=False)
    if isinstance(arguments.get("log_ranks"), (int, list, tuple)):
        ranks = arguments["log_ranks"]
        arguments["log_ranks"] = str(ranks) if isinstance(ranks, int) else ",".join(map(str, ranks))
    if constant:
        parse_job(job_mapping(arguments))
        check_options(arguments)
    arguments |= _packed(arguments, base)
    if (size := len(json.dumps(arguments, default=str))) > ARGUMENT:
        raise BadInputError(
            f"the inputs have {size} bytes; a step gets them as one argument of at most {ARGUMENT} bytes; put long"
            " inputs into the image or into a file on a volume"
        )
    return arguments


def _take_job(inputs: dict[str, Any], base: Path) -> Path:
    """Replaces `job` in `inputs` by a mapping; returns the directory that its paths are relative to."""
    job = inputs.get("job")
    if isinstance(job, TrainingJob):
        inputs["job"] = job.to_dict()
    elif isinstance(job, (str, Path)):
        path = base / job
        inputs["job"] = dict(read_job_file(path))
        return path.parent
    return base


def _packed(arguments: Mapping[str, Any], base: Path) -> dict[str, str]:
    """Returns the inputs for a packed code directory or script; empty if neither is a constant."""
    job = arguments.get("job") if isinstance(arguments.get("job"), Mapping) else {}
    code = arguments.get("code") or (job or {}).get("code")
    script = arguments.get("script") or (job or {}).get("script")
    if isinstance(code, str) and not has_runtime_value(code):
        return _packed_code(code, script if isinstance(script, str) and not has_runtime_value(script) else None, base)
    if isinstance(script, str) and not has_runtime_value(script):
        path = base / script
        if not path.is_file():
            raise BadInputError(
                f"script: no such file: {path}; paths are relative to the pipeline's file; for a script in the image"
                " use command"
            )
        content = read_sources(parse_job({"name": "code", "script": script}), base).script or b""
        return {"packed": pack_script(path.name, content), "script": path.name}
    return {}


def _packed_code(code: str, script: str | None, base: Path) -> dict[str, str]:
    job = parse_job({"name": "code", "code": code, **({"command": ["true"]} if script is None else {"script": script})})
    read = read_sources(job, base)
    for note in read.notes:
        _log.warning(note)
    hint = f" the largest files are {largest(read.files)}; `stepset explain --files` lists all;"
    # The step unpacks the archive into a directory with this name.
    name = read.code_dir.resolve().name or "code"
    packed = {"packed": pack(read.archive or b"", "code", hint), "code": name}
    return packed if script is None else {**packed, "script": script_in_code(job)}


def _word(item: Any) -> Any:
    """Returns a number of a command as text; returns other words unchanged, for the model to check."""
    return str(item) if isinstance(item, (int, float)) and not isinstance(item, bool) else item


def _mark_numbers(value: Any, *, nested: bool = True) -> Any:
    """Returns `value`; inside lists and mappings, the numbers that KFP would change are marked.

    KFP inserts the value of an Integer parameter as text, for example 2 as "2.0"; such a parameter is marked with
    WHOLE. KFP passes the constants 1.0 and 1 as the same double, and rounds integers of more than 53 bits; such
    constants are marked with SOURCE.
    """
    from kfp.dsl.pipeline_channel import PipelineParameterChannel

    if isinstance(value, PipelineParameterChannel):
        return {WHOLE: value} if nested and value.channel_type == "Integer" else value
    if isinstance(value, Mapping):
        return {key: _mark_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mark_numbers(item) for item in value]
    if isinstance(value, Scalar):
        return {SOURCE: value.source}
    changed = value.is_integer() if isinstance(value, float) else isinstance(value, int) and abs(value) > _MAX_EXACT
    return {SOURCE: str(value)} if changed and nested else value


def has_runtime_value(value: Any) -> bool:
    """Returns whether a value contains a task's output, a pipeline's parameter or a placeholder."""
    from kfp.dsl.pipeline_channel import PipelineChannel, extract_pipeline_channels_from_any

    channels = [value] if isinstance(value, PipelineChannel) else extract_pipeline_channels_from_any(value)
    return bool(channels) or _has_placeholder(value)


def _has_placeholder(value: Any) -> bool:
    """Returns whether text in a value contains a KFP placeholder, such as dsl.WORKSPACE_PATH_PLACEHOLDER."""
    if isinstance(value, Mapping):
        return any(map(_has_placeholder, value.values()))
    return any(map(_has_placeholder, value)) if isinstance(value, (list, tuple)) else "{{$" in str(value)
