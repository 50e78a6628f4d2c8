"""Reads the paths of the sources of Kubeflow Pipelines and Argo Workflows from two environment variables."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.testbed.layout import TestbedError

from .layout import ARGO_VERSION, KFP_VERSION

KFP_VARIABLE, ARGO_VARIABLE = "STEPSET_KFP_SOURCE", "STEPSET_ARGO_SOURCE"
_ARGO_MODULE = "github.com/argoproj/argo-workflows/v4"

HOW_TO = f"""\
The backend is built from two source directories:
  git clone --depth 1 --branch {KFP_VERSION} https://github.com/kubeflow/pipelines
  git clone --depth 1 --branch v{ARGO_VERSION} https://github.com/argoproj/argo-workflows
  export {KFP_VARIABLE}=$PWD/pipelines {ARGO_VARIABLE}=$PWD/argo-workflows"""


@dataclass(frozen=True)
class Sources:
    """The directories with the sources of KFP and Argo Workflows. No file in these directories is changed."""

    kfp: Path
    argo: Path

    def digest(self) -> str:
        """Returns a digest of the versions of all modules that a build uses."""
        files = [directory / name for directory in (self.kfp, self.argo) for name in ("go.mod", "go.sum")]
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def missing(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the names of the variables that are not set."""
    return [name for name in (KFP_VARIABLE, ARGO_VARIABLE) if not environ.get(name)]


def from_environment(environ: Mapping[str, str] = os.environ) -> Sources:
    """Returns the source directories whose paths the environment variables contain.

    Raises:
        TestbedError: a variable is not set, or its directory does not contain the sources of the expected version.
    """
    if names := missing(environ):
        raise TestbedError(f"{' and '.join(names)} not set; see tools/kfp-backend --help")
    found = Sources(Path(environ[KFP_VARIABLE]), Path(environ[ARGO_VARIABLE]))
    version = _read(found.kfp, "VERSION", KFP_VARIABLE).strip()
    if version != KFP_VERSION:
        raise TestbedError(f"{KFP_VARIABLE}={found.kfp} is version {version[:20]}; check out tag {KFP_VERSION}")
    line = f"{_ARGO_MODULE} v{ARGO_VERSION}/go.mod {_module_hash(_read(found.argo, 'go.mod', ARGO_VARIABLE))}"
    if line not in _read(found.kfp, "go.sum", KFP_VARIABLE).splitlines():
        raise TestbedError(f"{ARGO_VARIABLE}={found.argo} is not version {ARGO_VERSION}; check out tag v{ARGO_VERSION}")
    return found


def _read(directory: Path, name: str, variable: str) -> str:
    try:
        return (directory / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TestbedError(f"{variable}={directory}: {name} cannot be read; see tools/kfp-backend --help") from error


def _module_hash(go_mod: str) -> str:
    """Returns the hash of a go.mod file in the form of go.sum (golang.org/x/mod/sumdb/dirhash, Hash1)."""
    line = f"{hashlib.sha256(go_mod.encode()).hexdigest()}  go.mod\n"
    return "h1:" + base64.b64encode(hashlib.sha256(line.encode()).digest()).decode()
