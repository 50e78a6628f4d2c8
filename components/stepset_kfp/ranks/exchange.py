"""Exchanges files between the step of a distributed component and its ranks.

On one machine both use the same files. On a cluster both must mount a directory: the pipeline's workspace or another
volume. The step copies the inputs to this directory before the run, and rank 0's outputs from it afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepset.errors import BadInputError, InfrastructureError
from stepset_kfp.backend import backend_name
from stepset_kfp.outputs.artifacts import copy
from stepset_kfp.outputs.contained_copy import OutsideError, open_contained
from stepset_kfp.task_config import TaskConfig

WORKSPACE = "/kfp-workspace"
"""Where KFP mounts a pipeline's workspace (kfp.dsl.constants.WORKSPACE_MOUNT_PATH)."""

_ANYWHERE = (Path("/"),)
"""Roots for copying the inputs: any path, because the pipeline wrote them, not a training."""
_OUTPUT_LIMIT = 16 * 1024 * 1024
"""Maximum bytes of rank 0's executor output to read."""

_MOUNTS = {"s3://": "/s3/", "gs://": "/gcs/", "minio://": "/minio/"}


class Exchange(Protocol):
    """Passes inputs to the ranks and returns rank 0's outputs."""

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the executor input of the ranks, with paths that they can read and write."""

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Copies rank 0's outputs to the locations that KFP reads."""


class LocalExchange:
    """The exchange of a step and ranks on one machine."""

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        return dict(executor_input)

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Does nothing: rank 0 has written the outputs."""


def exchange_for(options: Mapping[str, Any], task: TaskConfig | None, executor_input: Mapping[str, Any]) -> Exchange:
    """Returns the exchange of a step; raises BadInputError if step and training pods share no directory.

    `executor_input` identifies the step, because it contains the locations of the outputs, which retries do not change.
    """
    if backend_name(options["backend"], os.environ) == "local":
        return LocalExchange()
    mounted = {str(mount.get("mountPath")) for mount in (task.volume_mounts if task else None) or ()}
    shared = options.get("shared_dir") or (WORKSPACE if WORKSPACE in mounted else "")
    if not shared:
        raise BadInputError(
            "shared_dir: the step and the training pods share no directory; give the pipeline a ReadWriteMany workspace"
            " and pass dsl.WORKSPACE_PATH_PLACEHOLDER to one of its tasks, or mount a volume on the task and set"
            " shared_dir to its mount path"
        )
    name = hashlib.sha256(json.dumps(executor_input, sort_keys=True).encode()).hexdigest()[:16]
    return SharedDirectory(Path(shared, ".stepset", name), Path(shared).resolve())


@dataclass(frozen=True)
class SharedDirectory:
    """The exchange through a shared volume; `directory` is on the volume, and only this step uses it.

    Args:
        root: the resolved directory that the pods share. Only files below it are copied: a training can replace
            `directory` by a link, but not `root`.
    """

    directory: Path
    root: Path

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        """Copies inputs into the directory; returns the executor input with all paths in the directory."""
        changed: dict[str, Any] = json.loads(json.dumps(executor_input))
        self._check_place()
        for name, index, artifact in _artifacts(changed.get("inputs")):
            source, target = local_path(artifact), self.directory / "inputs" / name / str(index)
            _copy(source, target, _ANYWHERE, within=self.root)
            _set_path(artifact, target)
        outputs = changed.get("outputs") or {}
        outputs["outputFile"] = str(self.directory / "outputs" / "executor_output.json")
        for name, parameter in (outputs.get("parameters") or {}).items():
            parameter["outputFile"] = str(self.directory / "outputs" / "parameters" / name)
        for name, _, artifact in _artifacts(outputs):
            _set_path(artifact, self._output(name))
        (self.directory / "outputs").mkdir(parents=True, exist_ok=True)
        return changed

    def _check_place(self) -> None:
        """Raises InfrastructureError if the training of an earlier attempt has replaced the directory by a link."""
        if not self._output("").resolve().is_relative_to(self.root):
            raise InfrastructureError(f"{self.directory} leads out of the shared directory; remove the link")

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Copies rank 0's outputs to the locations that KFP reads, and deletes the directory."""
        outputs = executor_input.get("outputs") or {}
        for name, parameter in (outputs.get("parameters") or {}).items():
            _copy(self.directory / "outputs" / "parameters" / name, Path(parameter["outputFile"]), (self.root,))
        uris = {}
        for name, _, artifact in _artifacts(outputs):
            _copy(self._output(name), local_path(artifact), (self.root,))
            uris[str(self._output(name))] = artifact["uri"]
        self._fetch_executor_output(Path(outputs["outputFile"]), uris)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _fetch_executor_output(self, target: Path, uris: Mapping[str, str]) -> None:
        """Copies rank 0's executor output, with the original URIs of the artifacts."""
        source = self.directory / "outputs" / "executor_output.json"
        if not source.exists():
            return
        try:
            with open_contained(source, (self.root,)) as file:
                output = json.loads(file.read(_OUTPUT_LIMIT + 1)[:_OUTPUT_LIMIT])
            if not isinstance(output, dict):
                raise ValueError("not a mapping")
            for _, _, artifact in _artifacts(output):
                artifact["uri"] = uris.get(artifact.get("uri", ""), artifact.get("uri", ""))
        except (OSError, ValueError, RecursionError, AttributeError, TypeError) as error:  # it may have any form
            raise InfrastructureError(f"{source}: rank 0's outputs cannot be read: {error}") from error
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(output), encoding="utf-8")

    def _output(self, name: str) -> Path:
        return self.directory / "outputs" / "artifacts" / name


def local_path(artifact: Mapping[str, Any]) -> Path:
    """Returns the path at which KFP's launcher puts an artifact (kfp.dsl.types.artifact_types, Artifact._get_path)."""
    uri = str(artifact["uri"])
    path = next((f"{mount}{uri[len(scheme) :]}" for scheme, mount in _MOUNTS.items() if uri.startswith(scheme)), uri)
    if uri.startswith("oci://"):
        path = "/oci/" + uri[len("oci://") :].replace("/", "_")
    if artifact.get("custom_path"):
        path = str(artifact["custom_path"])
    if (artifact.get("metadata") or {}).get("_kfp_workspace") is True:
        path = f"{WORKSPACE}/.artifacts/{path.lstrip('/')}"
    return Path(path)


def _artifacts(holder: Mapping[str, Any] | None) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for name, held in ((holder or {}).get("artifacts") or {}).items():
        for index, artifact in enumerate(held.get("artifacts") or ()):
            yield name, index, artifact


def _set_path(artifact: dict[str, Any], path: Path) -> None:
    artifact["uri"] = str(path)
    artifact.pop("custom_path", None)
    (artifact.get("metadata") or {}).pop("_kfp_workspace", None)


def _copy(source: Path, target: Path, roots: Sequence[Path], within: Path | None = None) -> None:
    """Copies a file or directory, if it exists; raises InfrastructureError if it leads outside the roots."""
    if not source.exists():
        return
    try:
        copy(source, target, "", roots, within)
    except OutsideError as error:
        raise InfrastructureError(f"{source} is not copied: it {error.strerror}") from error
