"""Exchanges files between the step of a distributed component and its ranks.

If the step and the ranks run on one machine, they use the same files. On a cluster, the step and the training pods must
mount the same directory. This directory is the workspace of the pipeline or another volume. Before the run, the
step copies the inputs to this directory. After the run, the step copies the outputs of rank 0 from this directory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepset.directory_trees import discard_tree
from stepset.errors import BadInputError, InfrastructureError
from stepset.printable import printable
from stepset_kfp.backend import backend_name
from stepset_kfp.outputs.artifacts import leaves_its_store
from stepset_kfp.outputs.contained_copy import OutsideError, copy_contained, open_contained
from stepset_kfp.task_config import WORKSPACE_MOUNT, TaskConfig

_ANYWHERE = (Path("/"),)
"""The roots for copying the inputs. Any path is allowed, because KFP sets the paths of the inputs."""
_OUTPUT_LIMIT = 16 * 1024 * 1024
"""The maximum number of bytes that are read from rank 0's executor output."""

_MOUNTS = {"s3://": "/s3/", "gs://": "/gcs/", "minio://": "/minio/"}
"""The local directory of the artifacts in each object store."""


class Exchange(Protocol):
    """Passes the inputs of the step to the ranks, and the outputs of rank 0 to KFP.

    The executor input is JSON from KFP with the locations of the inputs and outputs of a step.
    """

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the executor input for the ranks. The ranks can read and write the paths in this executor input."""

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Copies rank 0's outputs to the locations that KFP reads."""


class LocalExchange:
    """The exchange if the step and the ranks run on one machine and use the same files."""

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        return dict(executor_input)

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Does nothing, because rank 0 has written the outputs to the locations that KFP reads."""


def exchange_for(options: Mapping[str, Any], task: TaskConfig | None, executor_input: Mapping[str, Any]) -> Exchange:
    """Returns the exchange that a step uses.

    The name of the shared directory is derived from `executor_input`. A retry of the step uses the same directory,
    because `executor_input` contains the same locations. Raises BadInputError if the step and the training pods do not
    share a directory.
    """
    if backend_name(options["backend"], os.environ) == "local":
        return LocalExchange()
    mounted = {str(mount.get("mountPath")) for mount in (task.volume_mounts if task else None) or ()}
    shared = options.get("shared_dir") or (WORKSPACE_MOUNT if WORKSPACE_MOUNT in mounted else "")
    if not shared:
        raise BadInputError(
            "shared_dir: the step and the training pods share no directory; give the pipeline a ReadWriteMany workspace"
            " and pass dsl.WORKSPACE_PATH_PLACEHOLDER to an input of this task, or mount a volume on the task and set"
            " shared_dir to its mount path"
        )
    name = hashlib.sha256(json.dumps(executor_input, sort_keys=True).encode()).hexdigest()[:16]
    return SharedDirectory(Path(shared, ".stepset", name), Path(shared).resolve())


@dataclass(frozen=True)
class SharedDirectory:
    """The exchange through a volume that the step and the training pods mount.

    Args:
        directory: a directory on the volume. Only this step and its ranks use it.
        root: the resolved path of the directory that the pods share. Outputs are copied only from files below `root`.
            The training code can replace `directory` with a link, but cannot replace `root`.
    """

    directory: Path
    root: Path

    def stage_inputs(self, executor_input: Mapping[str, Any]) -> dict[str, Any]:
        """Copies the inputs to the directory, and returns the executor input for the ranks.

        All paths in the returned executor input are inside the directory.
        """
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
        """Raises InfrastructureError if an earlier attempt has replaced the directory with a link."""
        if not self._output("").resolve().is_relative_to(self.root):
            raise InfrastructureError(f"{self.directory} leads out of the shared directory; remove the link")

    def fetch_outputs(self, executor_input: Mapping[str, Any]) -> None:
        """Copies the outputs of rank 0 to the locations that KFP reads, and deletes the directory."""
        outputs = executor_input.get("outputs") or {}
        for name, parameter in (outputs.get("parameters") or {}).items():
            _copy(self.directory / "outputs" / "parameters" / name, Path(parameter["outputFile"]), (self.root,))
        written = self._executor_output()
        uris = {}
        for name, _, artifact in _artifacts(outputs):
            _copy(self._output(name), local_path(artifact), (self.root,))
            uris[name] = artifact["uri"]
        for name, _, artifact in _artifacts(written):
            self._fetch_artifact(name, artifact, outputs, uris)
        if written is not None:
            target = Path(outputs["outputFile"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(written), encoding="utf-8")
        discard_tree(self.directory)

    def _fetch_artifact(
        self, name: str, artifact: dict[str, Any], outputs: Mapping[str, Any], uris: Mapping[str, str]
    ) -> None:
        """Copies the file of an artifact if rank 0 has changed the location of the artifact. Restores the original URI.

        In its executor output, rank 0 may replace the URI of the artifact with a path. KFP's launcher would upload the
        file that has this path in the step's container, instead of the file of rank 0 (mergeRuntimeArtifacts and
        retrieveArtifactPath in backend/src/v2/component/launcher_v2.go). Therefore this method copies the file of rank
        0 to the location of the output, and removes the path from the executor output.
        """
        paths = [artifact.pop(key, None) for key in ("custom_path", "customPath")]  # protojson reads both names
        uri = artifact.get("uri") or ""
        if leaves_its_store(uri):
            raise InfrastructureError(f"the URI {printable(uri)} of the output {printable(name)} has a part '..'")
        if "://" not in uri:
            paths.append(uri if uri != str(self._output(name)) else None)
            artifact.pop("uri", None)
            if name in uris:
                artifact["uri"] = uris[name]
        for path in filter(None, paths):
            for own, _, target in _artifacts(outputs):
                if own == name:
                    _copy(Path(path), local_path(target), (self.root,))

    def _executor_output(self) -> dict[str, Any] | None:
        """Returns the executor output of rank 0, or None if rank 0 has written no executor output.

        Raises InfrastructureError if the file does not have the expected form.
        """
        source = self.directory / "outputs" / "executor_output.json"
        if not source.exists():
            return None
        try:
            with open_contained(source, (self.root,)) as file:
                output = json.loads(file.read(_OUTPUT_LIMIT + 1)[:_OUTPUT_LIMIT])
            if not isinstance(output, dict):
                raise ValueError("not a mapping")
            for _, _, artifact in _artifacts(output):
                for key in ("uri", "custom_path", "customPath"):
                    if not isinstance(artifact.get(key) or "", str):
                        raise ValueError(f"{key} is not a text")
        except (OSError, ValueError, RecursionError, AttributeError, TypeError) as error:  # rank 0 may write anything
            raise InfrastructureError(f"{source}: rank 0's outputs cannot be read: {error}") from error
        return output

    def _output(self, name: str) -> Path:
        return self.directory / "outputs" / "artifacts" / name


def local_path(artifact: Mapping[str, Any]) -> Path:
    """Returns the path at which KFP's launcher stores an artifact in the step's file system.

    kfp.dsl.types.artifact_types, Artifact._get_path, implements the same rules.
    """
    uri = str(artifact["uri"])
    path = next((f"{mount}{uri[len(scheme) :]}" for scheme, mount in _MOUNTS.items() if uri.startswith(scheme)), uri)
    if uri.startswith("oci://"):
        path = "/oci/" + uri[len("oci://") :].replace("/", "_")
    if artifact.get("custom_path"):
        path = str(artifact["custom_path"])
    if (artifact.get("metadata") or {}).get("_kfp_workspace") is True:
        path = f"{WORKSPACE_MOUNT}/.artifacts/{path.lstrip('/')}"
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
    """Copies a file or directory if it exists.

    Raises InfrastructureError if the source is outside the roots or cannot be copied.
    """
    try:
        if source.exists():
            copy_contained(source, target, roots, within)
    except OutsideError as error:
        raise InfrastructureError(f"{source} is not copied: it {error.strerror}") from error
    except OSError as error:
        raise InfrastructureError(f"{source} cannot be copied to {target}: {error.strerror or error}") from error
