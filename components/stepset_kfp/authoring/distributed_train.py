"""`distributed_train` for pipelines: a task of the component in training/distributed_train/component.py.

When the pipeline is compiled, it packs files and checks the inputs that are constants.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stepset.errors import BadInputError
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.load import parse_job, read_job_file
from stepset_kfp.job_inputs import (
    LIST_FIELDS,
    MAPPING_FIELDS,
    NOT_GIVEN,
    TEXT_FIELDS,
    WHOLE,
    as_text,
    job_mapping,
)
from stepset_kfp.options import check_options
from stepset_kfp.packing import ARGUMENT, pack, pack_file

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask


class Inputs(TypedDict, total=False):
    """Inputs of `distributed_train`; docs/job-file.md describes the fields, the component's docstring the others.

    Each may also be an output of another task, or a parameter of the pipeline.
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
    """Returns the component's arguments; raises as `distributed_train`. Inputs that are None are ignored."""
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
            arguments[name] = [item if has_runtime_value(item) else str(item) for item in arguments[name]]
    for name in (*LIST_FIELDS, *MAPPING_FIELDS):
        if name in arguments:
            arguments[name] = _mark_integers(arguments[name], nested=False)
    if isinstance(arguments.get("log_ranks"), (int, list, tuple)):
        ranks = arguments["log_ranks"]
        arguments["log_ranks"] = str(ranks) if isinstance(ranks, int) else ",".join(map(str, ranks))
    if constant:
        parse_job(job_mapping(arguments))
        check_options(arguments)
    arguments |= _packed(arguments, base)
    if (size := len(json.dumps(arguments, default=str))) > ARGUMENT:
        raise BadInputError(
            f"the inputs are {size} bytes; a step gets them as one argument, at most {ARGUMENT}; put long ones into the"
            " image or into a file on a volume"
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
        from stepset.sources import read_sources

        with_script = {"script": script} if isinstance(script, str) else {"command": ["true"]}
        read = read_sources(parse_job({"name": "code", **with_script, "code": code}), base)
        # The step unpacks the archive into a directory with this name.
        return {"packed": pack(read.archive or b"", "code"), "code": Path(code).name or "code"}
    if isinstance(script, str) and not has_runtime_value(script):
        path = base / script
        if not path.is_file():
            raise BadInputError(
                f"script: no such file: {path}; paths are relative to the pipeline's file; for a script in the image"
                " use command"
            )
        return {"packed": pack_file(path, "script"), "script": path.name}
    return {}


def _mark_integers(value: Any, *, nested: bool = True) -> Any:
    """Returns `value` with each Integer parameter inside a list or mapping marked with the key WHOLE.

    KFP inserts the value of such a parameter as text, for example 2 as "2.0".
    """
    from kfp.dsl.pipeline_channel import PipelineParameterChannel

    if isinstance(value, PipelineParameterChannel):
        return {WHOLE: value} if nested and value.channel_type == "Integer" else value
    if isinstance(value, Mapping):
        return {key: _mark_integers(item) for key, item in value.items()}
    return [_mark_integers(item) for item in value] if isinstance(value, (list, tuple)) else value


def has_runtime_value(value: Any) -> bool:
    """Whether a value contains a task's output, a pipeline's parameter or a placeholder."""
    from kfp.dsl.pipeline_channel import PipelineChannel, extract_pipeline_channels_from_any

    channels = [value] if isinstance(value, PipelineChannel) else extract_pipeline_channels_from_any(value)
    return bool(channels) or _has_placeholder(value)


def _has_placeholder(value: Any) -> bool:
    """Whether text in a value contains one of KFP's placeholders, such as dsl.WORKSPACE_PATH_PLACEHOLDER."""
    if isinstance(value, Mapping):
        return any(map(_has_placeholder, value.values()))
    return any(map(_has_placeholder, value)) if isinstance(value, (list, tuple)) else "{{$" in str(value)
