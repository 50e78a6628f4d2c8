"""Builds the Go programs of Kubeflow Pipelines and Argo Workflows, and stores them in the test bed's cache.

The name of the directory in the cache consists of the versions of KFP and Argo, and of a digest of everything that
affects the programs.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from pathlib import Path

from tests.cluster.testbed import build as testbed
from tests.cluster.testbed.layout import TestbedError

from . import changes
from .layout import ARGO_VERSION, KFP_VERSION
from .sources import Sources

KFP_PROGRAMS = {
    "launcher-v2": "./backend/src/v2/cmd/launcher-v2",
    "driver": "./backend/src/v2/cmd/driver",
    "compiler": "./backend/src/v2/cmd/compiler",
    "apiserver": "./backend/src/apiserver",
    "persistence_agent": "./backend/src/agent/persistence",
}
_ARGO_MODULE = "github.com/argoproj/argo-workflows/v4"
ARGO_PROGRAMS = {
    "argoexec": f"{_ARGO_MODULE}/cmd/argoexec",
    "workflow-controller": f"{_ARGO_MODULE}/cmd/workflow-controller",
}
KUBERNETES_MODULES = ("k8s.io/kubectl", "k8s.io/cli-runtime")
"""Modules that Argo requires and KFP does not require. They have the version of KFP's other Kubernetes modules."""
_CLIENT = "k8s.io/client-go"

_KFP_FILES = {
    "pipelines-crd.yaml": "manifests/kustomize/base/crds/pipelines.kubeflow.org_pipelines.yaml",
    "pipelineversions-crd.yaml": "manifests/kustomize/base/crds/pipelines.kubeflow.org_pipelineversions.yaml",
    "scheduled-workflow-crd.yaml": "manifests/kustomize/base/pipeline/cluster-scoped/scheduled-workflow-crd.yaml",
    "runner-role.yaml": "manifests/kustomize/base/pipeline/pipeline-runner-role.yaml",
    "config.json": "backend/src/apiserver/config/config.json",
}
_ARGO_DEFINITIONS = "manifests/base/crds/minimal"


def directory(sources: Sources) -> Path:
    """Returns the directory that contains the programs (in `bin/`) and the files of KFP and Argo (in `files/`).

    The directory does not exist if nothing has been built yet.
    """
    content = repr((KFP_PROGRAMS, ARGO_PROGRAMS, KUBERNETES_MODULES, _KFP_FILES)).encode()
    content += Path(changes.__file__).read_bytes() + Path(__file__).read_bytes() + sources.digest().encode()
    key = hashlib.sha256(content).hexdigest()[:12]
    return testbed.cache_root() / f"kfp-{KFP_VERSION}-argo-{ARGO_VERSION}-{key}"


def ensure(sources: Sources) -> Path:
    """Builds the programs if they are not in the cache, and returns their directory.

    Raises:
        TestbedError: Go is missing, or a download or a build has failed. The message contains the last lines of output.
    """
    target = directory(sources)
    if target.is_dir():
        return target
    if shutil.which("go") is None:
        raise TestbedError("the backend is built with Go, and no `go` is on PATH; install Go >= 1.26")
    testbed.cache_root().mkdir(parents=True, exist_ok=True)
    with (testbed.cache_root() / "kfp-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(sources, target)
    return target


def _build(sources: Sources, target: Path) -> None:
    started = time.monotonic()
    print(f"building KFP {KFP_VERSION} and Argo Workflows {ARGO_VERSION} (once; minutes)", flush=True)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    copies = changes.copy_and_change(sources, partial / "sources")
    _copy_files(copies, partial / "files")
    (partial / "bin").mkdir()
    for name, package in KFP_PROGRAMS.items():
        _compile(copies.kfp, partial / "bin" / name, package, "go.mod")
    _write_argo_module(copies)
    for name, package in ARGO_PROGRAMS.items():
        _compile(copies.kfp, partial / "bin" / name, package, "argo.mod")
    shutil.rmtree(partial / "sources")
    partial.rename(target)
    print(f"built KFP and Argo Workflows in {time.monotonic() - started:.0f} s", flush=True)


def _compile(module: Path, output: Path, package: str, go_mod: str) -> None:
    started = time.monotonic()
    flags = ["-buildvcs=false", "-mod=mod", f"-modfile={go_mod}", "-trimpath", "-gcflags", testbed.GCFLAGS]
    testbed.go(module, "build", *flags, "-ldflags", testbed.LDFLAGS, "-o", str(output), package)
    print(f"  {output.name}: {time.monotonic() - started:.0f} s", flush=True)


def _write_argo_module(sources: Sources) -> None:
    """Writes argo.mod to the directory of KFP's go.mod.

    argo.mod has the module versions of KFP's go.mod, but uses Argo from its source directory. Argo's archive in the Go
    module proxy cannot be used, because a file of argoexec is a symlink and is missing in the archive.
    """
    for suffix in ("mod", "sum"):
        shutil.copy(sources.kfp / f"go.{suffix}", sources.kfp / f"argo.{suffix}")
    version = testbed.go(sources.kfp, "list", "-mod=mod", "-m", "-f", "{{.Version}}", _CLIENT).strip()
    required = [f"-require={name}@{version}" for name in KUBERNETES_MODULES]
    testbed.go(sources.kfp, "mod", "edit", f"-replace={_ARGO_MODULE}={sources.argo}", *required, "argo.mod")


def _copy_files(sources: Sources, target: Path) -> None:
    target.mkdir()
    for name, file in _KFP_FILES.items():
        shutil.copy(sources.kfp / file, target / name)
    for path in sorted((sources.argo / _ARGO_DEFINITIONS).glob("argoproj.io_*.yaml")):
        shutil.copy(path, target / f"{path.stem}-crd.yaml")
