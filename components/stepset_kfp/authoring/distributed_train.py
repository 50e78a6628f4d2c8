"""The function `distributed_train`, which creates a task of the component in training/distributed_train/component.py.

When a pipeline is compiled, the function packs the code and checks the inputs that are constants.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.regular_files import script_remedy
from stepset.sources import Sources, import_notes, read_sources
from stepset.sources.archive import largest
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.load import parse_job, read_job_file
from stepset_kfp.authoring.budget import INLINE, spend
from stepset_kfp.authoring.caching import set_caching
from stepset_kfp.authoring.checkpoints import check_checkpoint_dir
from stepset_kfp.authoring.cleanup_scope import add_training
from stepset_kfp.authoring.cluster_checks import check_step, check_training, may_run_on_cluster, place_of
from stepset_kfp.authoring.code_store import REMEDY, code_store, import_code, upload
from stepset_kfp.authoring.display_name import given_name, show_name
from stepset_kfp.authoring.encoding import (
    Encoder,
    artifact_problem,
    has_runtime_value,
    is_artifact,
    is_channel,
    type_of,
    with_inputs,
)
from stepset_kfp.authoring.input_objects import check_objects
from stepset_kfp.authoring.job_check import check_job
from stepset_kfp.authoring.local_loops import check_local_loop
from stepset_kfp.job_inputs import NOT_GIVEN, TEXT_FIELDS, as_text
from stepset_kfp.packing import as_text as packed_text
from stepset_kfp.packing import script_archive

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

_log = logging.getLogger(__name__)


class Inputs(TypedDict, total=False):
    """The inputs of `distributed_train`.

    docs/reference/stepset_kfp.md describes each input. docs/job-file.md describes the fields of the job file in detail.
    Each value may be a constant, an output of another task, or a parameter of the pipeline.
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
    requirements: Any
    env: Any
    resources_per_node: Any
    shm: Any
    storage: Any
    checkpoint_dir: Any
    roles: Any
    restart: Any
    hang: Any
    deadline: Any
    termination_grace_period: Any
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
    on_orphan: Any
    admission_timeout: Any
    startup_timeout: Any


_GPUS = 'resources_per_node={"gpus": 8}, or call set_accelerator_type and set_accelerator_limit of the task'
_ELSEWHERE = {
    "gpus": _GPUS,
    "accelerator": _GPUS,
    "accelerator_type": _GPUS,
    "accelerator_limit": _GPUS,
    "arguments": 'args=["--epochs", "3"]',
    "base_image": 'image="REGISTRY/NAME:TAG"',
    "retries": 'restart={"max_restarts": 3}',
    "node_selector": 'scheduling={"node_selector": {"pool": "a100"}}',
    "tolerations": 'scheduling={"tolerations": [...]}',
    "packages_to_install": 'requirements=["datasets"]',
    "volumes": 'storage=[{"path": "/data", "claim": "datasets"}]',
    "timeout": 'deadline="12h"',
    "workdir": 'code="DIR", in which the ranks start',
    "working_dir": 'code="DIR", in which the ranks start',
    "secrets": 'env={"TOKEN": {"secret": "NAME", "key": "KEY"}}',
}
"""What to write instead of inputs that other components or operators have."""


def distributed_train(
    *, base_dir: str | Path | None = None, caching: bool = False, **inputs: Unpack[Inputs]
) -> PipelineTask:
    """Returns a task that runs a distributed training job and waits until the run has finished.

    The function reads `script` and `code` when the pipeline is compiled, and packs the files. If the packed files have
    at most 8 KiB, they become part of the pipeline. Larger files become an artifact in the store whose URI is in the
    environment variable STEPSET_KFP_CODE_STORE.

    Args:
        base_dir: the directory to which paths are relative. Default: the directory of the caller's file.
        caching: whether KFP may reuse the outputs of an earlier run of the task. The default is False, because
            KFP's cache ignores changes of resources, of variables, of secrets, and of the image behind a tag.
        inputs: the inputs of the component. docs/reference/stepset_kfp.md describes each input. `job` may be the path
            of a job file, a mapping or a `TrainingJob`. Paths may be strings or `Path` objects.

    Returns:
        The task. The task has the outputs `model`, `metrics`, `report`, `result` and `run`.

    Raises:
        BadInputError: an input is unknown, a file cannot be read, the job is invalid, or the constant inputs of the
            pipeline are too large for Argo Workflows.
        InfrastructureError: the code cannot be written to the store.
    """
    from stepset_kfp.authoring.task_settings import check_at_compilation
    from stepset_kfp.training.distributed_train.component import distributed_train as component

    given: dict[str, Any] = dict(inputs)
    if unknown := sorted(set(given) - set(Inputs.__annotations__)):
        parameters = (*Inputs.__annotations__, "base_dir", "caching")
        problems = (
            f"{name}: no such input; "
            + (artifact_problem(given[name].name) if is_artifact(given[name]) else hint(name, parameters))
            for name in unknown
        )
        raise BadInputError(*problems, where=place_of(component, given_name(given)))
    if not isinstance(caching, bool):
        problem = f"caching: {caching!r} is not a bool; give the constant True or False"
        raise BadInputError(problem, where=place_of(component, given_name(given)))
    base = Path(base_dir) if base_dir is not None else Path(sys._getframe(1).f_code.co_filename).parent
    try:
        given, base = with_job(given, base.resolve())
    except BadInputError as error:
        problems = (f"job: {error.where}: {problem}" for problem in error.problems)
        raise BadInputError(*problems, where=place_of(component, given_name(given))) from None
    encoder, name = Encoder(), given_name(given)
    place = place_of(component, name)
    try:
        arguments, code = prepare(given, base, encoder, place)
    except BadInputError as error:
        raise error.at(place) from None
    check_step(place, component)
    check_local_loop(place, encoder.values.values())
    add_training(place, given)
    check_checkpoint_dir(place, given, 'add the item of the loop, for example checkpoint_dir=f"{DIRECTORY}/{item}"')
    if code is not None:
        for note in code.notes:
            _log.warning("%s: %s", place, note)
        text = packed_text(code.archive)
        store = code_store() if len(text) > INLINE else None
        passed = {"packed_code": text} if store is None else {"files": import_code(upload(code.archive, store)).output}
        arguments |= passed
    spend(place, name or str(component.name), arguments, f"{code.largest if code is not None else ''}{REMEDY}")
    # The local runners of KFP 2.15 and 2.16 cannot run a component if an optional artifact is missing.
    without = () if "files" in arguments else ("files",)
    task = with_inputs(component, encoder.values, without)(**arguments, **encoder.values)
    set_caching(task, caching)
    show_name(task, name)
    remedy = "use a directory of dsl.WORKSPACE_PATH_PLACEHOLDER"
    check_at_compilation(task, place, given, as_arguments(given), remedy)
    return task


def hint(name: str, known: Iterable[str]) -> str:
    """Returns what to write instead of an unknown argument, if `known` are the arguments of the function."""
    return f"write {_ELSEWHERE[name]}" if name in _ELSEWHERE else nearest(name, known)


@dataclass(frozen=True)
class ShippedCode:
    """Code that was read and packed when the pipeline was compiled.

    Args:
        inputs: the values of the step's inputs `script` and `code`. `script` is a path in the archive. `code` is the
            name of the directory into which the step unpacks the archive.
        archive: the content of a tar.gz file.
        largest: the names of the largest files, for error messages. Empty if there is only one file.
        notes: notes for the author of the pipeline about ignored files and about imports that the pods may lack.
    """

    inputs: Mapping[str, str]
    archive: bytes
    largest: str = ""
    notes: tuple[str, ...] = ()


def prepare(
    inputs: Mapping[str, Any], base: Path, encoder: Encoder, place: str = ""
) -> tuple[dict[str, Any], ShippedCode | None]:
    """Returns a tuple of two elements. Raises the errors of `distributed_train`.

    The first element contains the arguments of the component. The second element is the code that the step needs, or
    None if the step needs no code.

    If an argument contains run-time values, the function adds these values to `encoder.values`.

    Args:
        inputs: the inputs that `with_job` returns.
        base: the directory that `with_job` returns.
        encoder: encodes the inputs.
        place: the description of the task for messages.
    """
    from stepset_kfp.training.distributed_train.component import distributed_train as component

    check_objects(inputs, component)
    nodes = inputs.get("num_nodes")
    if isinstance(nodes, int) and nodes == NOT_GIVEN:
        raise BadInputError(f"num_nodes: {nodes} is too small; give 1 or more")
    arguments = as_arguments(inputs)
    encoded = encoder.inputs(arguments)
    check_job(arguments, on_cluster=may_run_on_cluster(inputs))
    check_training(place, inputs)
    code = _shipped(arguments, base)
    return (encoded if code is None else encoder.inputs({**arguments, **code.inputs})), code


def as_arguments(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs with the types of the component's inputs.

    Args:
        inputs: the inputs that `with_job` returns.
    """
    texts = {
        name: str(value) if _is_number(value) else as_text(value)
        for name, value in inputs.items()
        if name in TEXT_FIELDS
        and not (name == "code" and isinstance(value, Mapping))
        and (_is_number(value) or not has_runtime_value(value))
    }
    arguments = {**inputs, **texts}
    for name in ("args", "command"):
        if isinstance(arguments.get(name), (list, tuple)):
            arguments[name] = [_word(item) for item in arguments[name]]
    if isinstance(arguments.get("log_ranks"), (int, list, tuple)):
        ranks = arguments["log_ranks"]
        arguments["log_ranks"] = str(ranks) if isinstance(ranks, int) else ",".join(map(str, ranks))
    return arguments


def _is_number(value: Any) -> bool:
    """Returns whether a value is a channel with a number. KFP rejects such a channel as the value of a text input."""
    return is_channel(value) and not is_artifact(value) and type_of(value) in ("Integer", "Float")


def with_job(given: Mapping[str, Any], base: Path) -> tuple[dict[str, Any], Path]:
    """Returns the inputs that are not None, and the base directory of relative paths in the inputs.

    In the returned inputs, `job` is a mapping or a run-time value. If the given `job` is the path of a job file, paths
    are relative to the directory of the job file. In `script` and `code`, a Path becomes a string.
    Raises BadInputError if the job file cannot be read.
    """
    inputs = {name: value for name, value in given.items() if value is not None}
    inputs |= {name: str(inputs[name]) for name in ("script", "code") if isinstance(inputs.get(name), Path)}
    job = inputs.get("job")
    if isinstance(job, TrainingJob):
        inputs["job"] = job.to_dict()
    elif isinstance(job, (str, Path)):
        path = base / job
        inputs["job"] = dict(read_job_file(path))
        return inputs, path.parent
    return inputs, base


def _shipped(arguments: Mapping[str, Any], base: Path) -> ShippedCode | None:
    """Reads and packs the code directory or the script. Returns None if there is no file to pack."""
    job = arguments.get("job") if isinstance(arguments.get("job"), Mapping) else {}
    code = arguments.get("code") or (job or {}).get("code")
    script = arguments.get("script") or (job or {}).get("script")
    if isinstance(code, Mapping):  # the code is in a volume of the cluster or in an image
        return None
    for name, path in (("code", code), ("script", None if code else script)):
        if has_runtime_value(path):
            raise BadInputError(
                f"{name}: the path is known only at run time, but the files are packed when the pipeline is compiled;"
                " give a constant path; to select a script at run time, give code=DIR, too"
            )
    if isinstance(code, str) and not has_runtime_value(code):
        return _shipped_code(code, script if isinstance(script, str) and not has_runtime_value(script) else None, base)
    if isinstance(script, str) and not has_runtime_value(script):
        path = base / script
        if not path.is_file():
            remedy = (
                script_remedy(script, base) or f"paths are relative to {base}; for a script in the image use command"
            )
            raise BadInputError(f"script: no such file: {path}; {remedy}")
        read = read_sources(parse_job({"name": "code", "script": script}), base)
        return _shipped_files(read, {"script": path.name})
    return None


def _shipped_code(code: str, script: str | None, base: Path) -> ShippedCode:
    job = parse_job({"name": "code", "code": code, **({"command": ["true"]} if script is None else {"script": script})})
    read = read_sources(job, base)
    # The step unpacks the archive into a directory with this name.
    inputs = {"code": read.code_dir.resolve().name or "code"}
    if script is not None:
        inputs["script"] = script_in_code(job)
    return _shipped_files(read, inputs)


def _shipped_files(read: Sources, inputs: Mapping[str, str]) -> ShippedCode:
    """Returns an archive with the files of a job. Raises BadInputError if the files cannot be shipped."""
    read.check_shippable()
    notes = (*read.notes, *import_notes(read))
    if read.script is not None:  # the script imports no other file of its directory
        return ShippedCode(inputs, script_archive(inputs["script"], read.script), notes=notes)
    files = f"the largest files are {largest(read.files)}; `stepset explain --files` lists all; "
    return ShippedCode(inputs, read.archive or b"", files, notes)


def _word(item: Any) -> Any:
    """Converts an item of a command to a string if the item is a number. Other items are checked later."""
    return str(item) if isinstance(item, (int, float)) and not isinstance(item, bool) else item
