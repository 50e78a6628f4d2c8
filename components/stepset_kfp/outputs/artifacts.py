"""Writes a step's outputs: model, metrics, result.

KFP stores the outputs of a step only if it succeeds (kubeflow/pipelines#12425).
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stepset.errors import InfrastructureError
from stepset.run_status import RunStatus
from stepset.spec.job import TrainingJob
from stepset.spec.template import writable_mounts
from stepset_kfp.outputs.contained_copy import OutsideError, contained_roots, copy_contained

MODEL_KEYS = ("model", "checkpoint")
"""Keys of rank 0's result that may name its model, in the order in which they are tried."""

_URI = re.compile(r"^[a-z][a-z0-9+.-]*://")


class Artifact(Protocol):
    """The attributes of kfp.dsl.Artifact that stepset uses."""

    uri: str
    metadata: dict[str, Any]

    @property
    def path(self) -> str: ...


class MetricsArtifact(Protocol):
    """The method of kfp.dsl.Metrics that stepset uses."""

    def log_metric(self, metric: str, value: float) -> None: ...


def write_model(model: Artifact, status: RunStatus, job: TrainingJob) -> str:
    """Writes the model of a run that succeeded; returns a message for the log. Raises like `copy`."""
    model.metadata.update(
        {"run": status.name, "framework": job.framework.kind, "world_size": status.world_size or 0, "job": job.name}
    )
    named = _named_model(status.result)
    if named and _URI.match(named):
        model.uri = named
        return f"model: {named}"
    path = Path(model.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    where, refused = named or job.checkpoint_dir, ""
    if named and _exists(named):
        try:
            copy(named, path, "model: ", _roots(status, job))
        except OutsideError as error:
            refused = error.strerror or str(error)
        else:
            model.metadata["source"] = named
            return f"model: a copy of {named}"
    note = {"run": status.name, "model": named, "checkpoint_dir": job.checkpoint_dir, "storage": _storage(job)}
    path.write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    if where is None:
        return "model: the result contains none; write {'model': path or URI} to STEPSET_RESULT_FILE in rank 0"
    model.metadata["source"] = where
    if refused:
        places = "storage, checkpoint_dir or a writable mount"
        return f"model: {where} {refused} ({places}); the artifact records only its location"
    return f"model: {where} is not mounted in this step; the artifact records only its location"


def copy(source: str | Path, target: Path, what: str, roots: Sequence[Path], within: Path | None = None) -> None:
    """Copies a file or directory as `copy_contained` does.

    Raises:
        OutsideError: the source leads outside the roots.
        InfrastructureError: the source cannot be copied; the message begins with `what`.
    """
    try:
        copy_contained(Path(source), target, roots, within)
    except OutsideError:
        raise
    except OSError as error:
        raise InfrastructureError(f"{what}{source} cannot be copied to {target}: {error.strerror or error}") from error


def write_metrics(metrics: MetricsArtifact, status: RunStatus) -> list[str]:
    """Writes the numbers of the training's last progress line and of the result, which takes precedence.

    Returns the names of omitted numbers: those that are not finite, with which KFP's JSON would fail the step.
    """
    found: dict[str, Any] = dict(status.progress.metrics) if status.progress else {}
    if isinstance(status.result, Mapping):
        found |= status.result
    omitted = []
    for name, value in found.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        if abs(value) <= sys.float_info.max:
            metrics.log_metric(_writable(str(name)), float(value))
        else:
            omitted.append(_writable(str(name)))
    return omitted


def result_text(status: RunStatus) -> str:
    """Returns the result as JSON; a result that is not a mapping becomes the value of the key `value`."""
    result = status.result
    if result is None:
        result = {}
    return json.dumps(_for_kfp(result if isinstance(result, Mapping) else {"value": result}), allow_nan=False)


def _for_kfp(value: Any) -> Any:
    """Returns `value` in a form that protobuf reads: NaN and Infinity as strings, no lone surrogates."""
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return str(value)
    if isinstance(value, Mapping):
        return {_writable(str(key)): _for_kfp(item) for key, item in value.items()}
    return [_for_kfp(item) for item in value] if isinstance(value, list) else value


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_text(path: str, text: str) -> None:
    """Writes an output parameter."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(_writable(text), encoding="utf-8")


def _roots(status: RunStatus, job: TrainingJob) -> list[Path]:
    """Returns the directories that may contain a model: those that the job declares, or all for a local run.

    A checkpoint_dir below a mount is not one of them: the training can replace it by a link.
    """
    if status.backend == "local":
        return [Path("/")]
    declared = (job.checkpoint_dir, *(mount.path for mount in job.storage), *writable_mounts(job.pod_template))
    return contained_roots([Path(os.path.normpath(each)) for each in declared if each])


def _exists(named: str) -> bool:
    try:
        return Path(named).exists()
    except (OSError, ValueError):  # the name is too long, or contains NUL
        return False


def _named_model(result: Any) -> str | None:
    if not isinstance(result, Mapping):
        return None
    return next((result[key] for key in MODEL_KEYS if isinstance(result.get(key), str) and result[key]), None)


def _storage(job: TrainingJob) -> list[dict[str, Any]]:
    return [{"path": str(each.path), "claim": each.claim, "sub_path": each.sub_path} for each in job.storage]
