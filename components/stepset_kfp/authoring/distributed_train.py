"""`distributed_train` as pipelines call it: checks what is known at compile time, and packs files.

It creates a task of the component in training/distributed_train/component.py.
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
    """What `distributed_train` takes; docs/job-file.md describes the fields, the component's docstring the rest.

    Each may also be an output of another task, or a pipeline's parameter.
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
    """Returns a task that runs a distributed training and waits for it.

    `script` and `code` are read when the pipeline is compiled and become part of it.

    Args:
        base_dir: what paths are relative to; default: the directory of the file that calls this.
        caching: whether KFP may reuse an earlier run's outputs. Default: no, because the cache's key does not contain
            resources, variables, secrets, or what is behind an image's tag.
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
    """Returns the component's arguments; raises as `distributed_train`. Values of None are not given."""
    inputs = {name: value for name, value in given.items() if value is not None}
    nodes = inputs.get("num_nodes")
    if isinstance(nodes, int) and nodes == NOT_GIVEN:
        raise BadInputError(f"num_nodes: {nodes} is too small; give 1 or more")
    base = _take_job(inputs, base)
    constant = not any(map(comes_later, inputs.values()))
    texts = {name: as_text(value) for name, value in inputs.items() if name in TEXT_FIELDS and not comes_later(value)}
    arguments = {**inputs, **texts}
    for name in ("args", "command"):
        if isinstance(arguments.get(name), (list, tuple)):
            arguments[name] = [item if comes_later(item) else str(item) for item in arguments[name]]
    for name in (*LIST_FIELDS, *MAPPING_FIELDS):
        if name in arguments:
            arguments[name] = _marked(arguments[name], inside=False)
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
            " image, or into a file on a volume"
        )
    return arguments


def _take_job(inputs: dict[str, Any], base: Path) -> Path:
    """Puts a job file's mapping into `inputs`; returns the directory that its paths are relative to."""
    job = inputs.get("job")
    if isinstance(job, TrainingJob):
        inputs["job"] = job.to_dict()
    elif isinstance(job, (str, Path)):
        path = base / job
        inputs["job"] = dict(read_job_file(path))
        return path.parent
    return base


def _packed(arguments: Mapping[str, Any], base: Path) -> dict[str, str]:
    """The script or the code directory, if it is a file beside the pipeline; a script in the image is a `command`."""
    job = arguments.get("job") if isinstance(arguments.get("job"), Mapping) else {}
    code = arguments.get("code") or (job or {}).get("code")
    script = arguments.get("script") or (job or {}).get("script")
    if isinstance(code, str) and not comes_later(code):
        from stepset.sources import read_sources

        with_script = {"script": script} if isinstance(script, str) else {"command": ["true"]}
        read = read_sources(parse_job({"name": "code", **with_script, "code": code}), base)
        # The step unpacks the archive into a directory of that name.
        return {"packed": pack(read.archive or b"", "code"), "code": Path(code).name or "code"}
    if isinstance(script, str) and not comes_later(script):
        path = base / script
        if not path.is_file():
            raise BadInputError(
                f"script: no such file: {path}; paths are relative to the pipeline's file; for one that is in the image"
                " use command"
            )
        return {"packed": pack_file(path, "script"), "script": path.name}
    return {}


def _marked(value: Any, *, inside: bool = True) -> Any:
    """`value` with parameters of type Integer marked where they stand inside lists and mappings.

    KFP writes the value of such a parameter as text there, and a 2 as "2.0".
    """
    from kfp.dsl.pipeline_channel import PipelineParameterChannel

    if isinstance(value, PipelineParameterChannel):
        return {WHOLE: value} if inside and value.channel_type == "Integer" else value
    if isinstance(value, Mapping):
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, (list, tuple)) else value


def comes_later(value: Any) -> bool:
    """Whether a value contains what is not known yet: a task's output, a pipeline's parameter, a placeholder."""
    from kfp.dsl.pipeline_channel import PipelineChannel, extract_pipeline_channels_from_any

    return isinstance(value, PipelineChannel) or bool(extract_pipeline_channels_from_any(value)) or _has_place(value)


def _has_place(value: Any) -> bool:
    """Whether text in a value contains one of KFP's placeholders, such as dsl.WORKSPACE_PATH_PLACEHOLDER."""
    if isinstance(value, Mapping):
        return any(map(_has_place, value.values()))
    return any(map(_has_place, value)) if isinstance(value, (list, tuple)) else "{{$" in str(value)
