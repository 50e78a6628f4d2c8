"""Writes the outputs `model`, `metrics` and `result` of a step.

KFP stores the outputs of a step only if the step succeeds (kubeflow/pipelines#12425).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stepset.run_status import RunStatus
from stepset.spec.template import writable_mounts
from stepset_kfp.backend import in_kfp_pod
from stepset_kfp.outputs.contained_copy import OutsideError, contained_roots, copy_contained, is_contained
from stepset_kfp.outputs.missing_model import check_exists

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

MODEL_KEYS = ("model", "checkpoint")
"""Keys in the result of rank 0. The first of these keys with a string contains the path or URI of the model."""

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://\S+")
_RELATIVE = "a relative path; the result must contain an absolute path"
_STORES = ("s3", "gs", "minio")
"""The URI schemes of the object stores to which KFP's launcher uploads artifacts."""
_OWN_PARTS = 3
"""The number of path parts that the URI of an output has after the directory of the pipeline run.

KFP appends the name of the task, a random string and the name of the output (provisionOutputs in
backend/src/v2/driver/driver.go)."""
_MAX_NAME = 255
"""The maximum number of bytes of a metric's name, because MLMD stores the name in a column VARCHAR(255)."""


class Artifact(Protocol):
    """The attributes of kfp.dsl.Artifact that stepset uses."""

    uri: str
    metadata: dict[str, Any]

    @property
    def path(self) -> str: ...


class MetricsArtifact(Protocol):
    """The method of kfp.dsl.Metrics that stepset uses."""

    def log_metric(self, metric: str, value: float) -> None: ...


@dataclass(frozen=True)
class ModelSettings:
    """The fields of a job that determine how a step stores the model.

    Args:
        framework: the kind of the framework.
        checkpoint_dir: the field `checkpoint_dir`.
        storage: the path, the claim and the sub-path of each entry of the field `storage`.
        directories: the directories in which the training can write files that a step on a cluster can read.
    """

    framework: str
    checkpoint_dir: str | None
    storage: tuple[Mapping[str, Any], ...]
    directories: tuple[str, ...]

    @classmethod
    def of(cls, job: TrainingJob) -> ModelSettings:
        storage = [{"path": str(each.path), "claim": each.claim, "sub_path": each.sub_path} for each in job.storage]
        declared = (job.checkpoint_dir, *(each["path"] for each in storage), *writable_mounts(job.pod_template))
        directories = tuple(os.path.normpath(each) for each in declared if each)
        return cls(job.framework.kind, job.checkpoint_dir, tuple(storage), directories)

    @property
    def declared(self) -> list[Path]:
        """The directories as paths."""
        return [Path(each) for each in self.directories]


def write_model(model: Artifact, status: RunStatus, settings: ModelSettings, work_dir: Path | None = None) -> str:
    """Writes the model of a run that succeeded, and returns a message for the log.

    If KFP cannot store the model, the function writes the location of the model to the metadata of the artifact and to
    a file. Therefore a step does not fail if the run has succeeded but the model cannot be stored. Raises
    MissingModelError if the training has not written the model that its result names.

    Args:
        model: the output artifact of the step.
        settings: how the step stores the model.
        work_dir: the working directory of the ranks of a local run. If None, or if the run was on a cluster, the
            function does not copy a model with a relative path.
    """
    model.metadata.update(
        {
            "run": status.name,
            "framework": settings.framework,
            "world_size": status.world_size or 0,
            "job": status.job,
        }
    )
    named = _named_model(status.result)
    if named and "://" in named and not named.startswith("/"):
        model.metadata["uri"] = named
        if _URI.fullmatch(named) and is_accepted(named, model.uri):
            model.uri = named
            return f"model: {named}"
        _write_placeholder(model, status, settings, named)
        return f"model: KFP cannot use {named} as an artifact's URI; the artifact records it as metadata 'uri'"
    problem = _copy_model(model, status, settings, named, work_dir) if named is not None else ""
    if named is not None and not problem:
        model.metadata["source"] = named
        return f"model: a copy of {named}{_cluster_note(status, settings, named)}"
    _write_placeholder(model, status, settings, named)
    if (where := named or settings.checkpoint_dir) is not None:
        model.metadata["source"] = where
    if named is None:
        records = f"; the artifact records only the location of checkpoint_dir, {where}" if where is not None else ""
        advice = "write {'model': path or URI} to STEPSET_RESULT_FILE in rank 0"
        return f"model: the result contains none{records}; {advice}"
    return f"model: {problem}; the artifact records only its location"


def _copy_model(model: Artifact, status: RunStatus, settings: ModelSettings, named: str, work_dir: Path | None) -> str:
    """Copies the model at the path `named` to the artifact. Returns why the model was not copied, or "" after a
    copy. Raises MissingModelError if the model does not exist."""
    check_exists(named, status.name, None if status.backend == "local" else settings.declared)
    path = Path(work_dir or "", named)
    if not named.startswith("/") and (status.backend != "local" or work_dir is None or not _exists(path)):
        return f"{named} is {_RELATIVE}"
    if not _exists(path):
        return f"{named} {'cannot be read' if status.backend == 'local' else 'is not mounted in this step'}"
    try:
        copy_contained(path, Path(model.path), _roots(status, settings))
    except OSError as error:
        places = " (storage, checkpoint_dir or a writable mount)" if isinstance(error, OutsideError) else ""
        return f"{named} {error.strerror or error}{places}"
    return ""


def _cluster_note(status: RunStatus, settings: ModelSettings, named: str) -> str:
    """Returns a note if a run on a cluster would not store the model of this local run. Otherwise returns ""."""
    if status.backend != "local" or in_kfp_pod(os.environ):
        return ""
    note = "; on a cluster, the artifact would record only the location, because"
    if not named.startswith("/"):
        return f"{note} {named} is {_RELATIVE}"
    if is_contained(Path(named).resolve(), [each.resolve() for each in settings.declared]):
        return ""
    return (
        f"{note} the job declares no directory that contains the model; set checkpoint_dir to its directory, or use"
        " storage"
    )


def is_accepted(uri: str, own: str) -> bool:
    """Returns whether KFP accepts a URI for an output artifact and for an input of a later task.

    KFP's launcher uploads an artifact whose URI begins with s3://, gs:// or minio://. The launcher fails the step if
    such a URI is not below the directory of the pipeline run (uploadOutputArtifacts and KeyFromURI). The launcher does
    not upload artifacts with the scheme oci:// or an unknown scheme. However, a later task fails if the URI of its
    input has an unknown scheme (fetchNonDefaultBuckets). KFP's local runner accepts every URI.

    Args:
        uri: the URI in the result of the run.
        own: the URI that KFP gave the artifact.

    >>> is_accepted("s3://models/a", "s3://pipelines/v2/digits/7d3c/train/12/model")
    False
    >>> is_accepted("s3://pipelines/v2/digits/7d3c/own/a", "s3://pipelines/v2/digits/7d3c/train/12/model")
    True
    """
    if leaves_its_store(uri):
        return False
    scheme = uri.partition("://")[0]
    if scheme == "oci" or not _URI.fullmatch(own):
        return True
    root = own.rsplit("/", _OWN_PARTS)[0]
    return scheme in _STORES and uri.startswith(f"{root}/") and bool(uri.removeprefix(root).strip("/"))


def leaves_its_store(uri: str) -> bool:
    """Returns whether a URI has a part `..`.

    Such a URI is dangerous, because KFP's launcher appends the URI to a local directory (LocalPathForURI). The launcher
    could upload a file of the step, such as the token of the service account. In a later task, the launcher could
    overwrite a file of that task.
    """
    return ".." in uri.split("/")


def _write_placeholder(model: Artifact, status: RunStatus, settings: ModelSettings, named: str | None) -> None:
    """Writes a file with the location of a model.

    If the file cannot be written, the error is ignored, because KFP's launcher accepts an artifact without content.
    """
    note = {"run": status.name, "model": named, "checkpoint_dir": settings.checkpoint_dir, "storage": settings.storage}
    with suppress(OSError):
        Path(model.path).parent.mkdir(parents=True, exist_ok=True)
        Path(model.path).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


def write_metrics(metrics: MetricsArtifact, status: RunStatus) -> list[str]:
    """Writes the metrics of a run, and returns the names of the metrics that were omitted.

    The metrics are the numbers in the last progress line and the numbers in the result. If the progress line and the
    result contain the same name, the number in the result is used. A metric is omitted if the number is not finite,
    because KFP's JSON cannot represent the number. A metric is also omitted if the name has more than 255 bytes. KFP
    would reject such metrics.
    """
    found: dict[str, Any] = dict(status.progress.metrics) if status.progress else {}
    if isinstance(status.result, Mapping):
        found |= status.result
    omitted = []
    for name, value in found.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        written = _writable(str(name))
        if abs(value) <= sys.float_info.max and len(written.encode()) <= _MAX_NAME:
            metrics.log_metric(written, float(value))
        else:
            omitted.append(written)
    return omitted


def result_text(status: RunStatus) -> str:
    """Returns the result of a run as a JSON mapping.

    A result that is not a mapping becomes the value of the key `value`. If the run has no result, the mapping is empty.
    Outside of a step's pod, the text contains no null, because KFP's local runner fails if an output contains null
    (kfp 2.17 kfp/compiler/pipeline_spec_builder.py, to_protobuf_value).
    """
    result = status.result
    if result is None:
        result = {}
    data = _for_kfp(result if isinstance(result, Mapping) else {"value": result})
    return json.dumps(data if in_kfp_pod(os.environ) else _without_null(data), allow_nan=False)


def _without_null(value: Any) -> Any:
    """Returns JSON data without the keys whose value is null. In lists, null becomes an empty string."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return ["" if item is None else _without_null(item) for item in value] if isinstance(value, list) else value


def _for_kfp(value: Any) -> Any:
    """Returns `value` in a form that protobuf can parse.

    Integers that a double cannot represent become strings. Lone surrogates are escaped. The result contains neither NaN
    nor infinity (`without_nan`).
    """
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return str(value)
    if isinstance(value, Mapping):
        return {_writable(str(key)): _for_kfp(item) for key, item in value.items()}
    return [_for_kfp(item) for item in value] if isinstance(value, list) else value


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_text(path: str, text: str) -> None:
    """Writes the value of an output parameter to the file that KFP reads."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(_writable(text), encoding="utf-8")


def _roots(status: RunStatus, settings: ModelSettings) -> list[Path]:
    """Returns the directories from which a model may be copied.

    For a local run, the function returns `/`, because the model may be in any directory. For a run on a cluster, the
    function returns the directories that the job declares. If checkpoint_dir is inside a mounted directory,
    checkpoint_dir is omitted, because the training code can replace checkpoint_dir with a link.
    """
    if status.backend == "local":
        return [Path("/")]
    return contained_roots(settings.declared)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # the name is too long, or contains NUL
        return False


def _named_model(result: Any) -> str | None:
    if not isinstance(result, Mapping):
        return None
    found = next((result[key] for key in MODEL_KEYS if isinstance(result.get(key), str) and result[key]), None)
    return found if found is None else _writable(found)
