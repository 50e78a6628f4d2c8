"""Builds the cluster's binaries from their Go modules, once, into a cache outside the checkout.

A component's directory in the cache is named by a hash of everything that determines its content, so a component is
rebuilt only if its go.mod changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from .components import COMPONENTS, Component
from .layout import GO_MODULES, TestbedError

LDFLAGS = "-s -w"
# Debug information takes a tenth of the compiler's time, and these programs are not debugged.
GCFLAGS = "all=-dwarf=false"
# Fewer garbage collections in the compiler save another tenth, for up to 2 GB of memory per core.
GOGC = "400"
# Seconds between attempts to download.
PAUSES = (5, 20, 60)
# A label on every rendered object; `kubectl label --local` also converts YAML to JSON without a server.
COMPONENT_LABEL = "stepset.test/component"


def cache_root() -> Path:
    """The cache's directory: $XDG_CACHE_HOME/stepset/cluster, by default ~/.cache/stepset/cluster."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "stepset" / "cluster"


def component_directory(name: str) -> Path:
    """Directory of a component's binaries (`bin/`) and manifests (`manifests/`); it may not be built yet."""
    return cache_root() / f"{name}-{_key(name)}"


def binary(component: str, name: str) -> Path:
    """Path of a binary; the file exists after `ensure([component])`."""
    return component_directory(component) / "bin" / name


def missing(names: Iterable[str]) -> list[str]:
    """Returns the components that are not in the cache."""
    return [name for name in names if not component_directory(name).is_dir()]


def ensure(names: Iterable[str]) -> list[str]:
    """Builds the components that are not in the cache.

    Args:
        names: keys of `COMPONENTS`; a kubernetes-* first, because its kubectl renders manifests.

    Returns:
        The names of the components that were built.

    Raises:
        TestbedError: Go is missing, or a download or a build failed; the message contains the last lines of output.
    """
    names = list(names)
    wanted = missing(names)
    if not wanted:
        return []
    if shutil.which("go") is None:
        raise TestbedError("the cluster's binaries are built with Go, and no `go` is on PATH; install Go >= 1.26")
    cache_root().mkdir(parents=True, exist_ok=True)
    kubectl = next((binary(name, "kubectl") for name in names if name.startswith("kubernetes-")), None)
    with (cache_root() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for {', '.join(wanted)}, which are being built", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for name in missing(wanted):
            _build(name, kubectl)
    return wanted


def _build(name: str, kubectl: Path | None) -> None:
    component = COMPONENTS[name]
    module = GO_MODULES / component.source
    started = time.monotonic()
    print(f"building {name} (once; minutes the first time)", flush=True)
    target = component_directory(name)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    _download(module, component)
    flags = ["-trimpath", "-gcflags", GCFLAGS, "-ldflags", LDFLAGS + _version_flags(component, module)]
    # One command for all programs: one is compiled while another is linked, which uses few cores.
    binaries = partial / "bin"
    output = binaries if len(component.packages) > 1 else binaries / next(iter(component.packages))
    go(module, "build", *flags, "-o", str(output), *component.packages.values())
    if component.manifests:
        if kubectl is None:
            raise TestbedError(f"{name} has manifests to render: build a kubernetes component with it")
        root = Path(go(module, "list", "-m", "-f", "{{.Dir}}", component.module).strip())
        (partial / "manifests").mkdir()
        for manifests in component.manifests:
            objects = _render(kubectl, root / manifests.directory, name)
            (partial / "manifests" / f"{manifests.name}.json").write_text(json.dumps(objects, indent=1))
    partial.rename(target)
    print(f"built {name} in {time.monotonic() - started:.0f} s", flush=True)


def _download(module: Path, component: Component) -> None:
    """Downloads the modules that the packages need; retries, because the proxy may fail temporarily."""
    for pause in (*PAUSES, None):
        try:
            go(module, "list", "-deps", "-f", "{{with .Error}}{{.}}{{end}}", *component.packages.values())
            return
        except TestbedError as error:
            if pause is None:
                raise
            print(f"{error}; once more in {pause} s", flush=True)
            time.sleep(pause)


def _version_flags(component: Component, module: Path) -> str:
    if not component.version_package:
        return ""
    version = go(module, "list", "-m", "-f", "{{.Version}}", component.module).strip()
    major, minor = version.lstrip("v").split(".")[:2]
    # A fixed date keeps the build reproducible.
    values = {
        "gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return "".join(f" -X {component.version_package}.{key}={value}" for key, value in values.items())


def go(module: Path, *arguments: str) -> str:
    """Runs `go` in a module's directory, without cgo; returns its output.

    Raises:
        TestbedError: the command failed; the message contains the last lines of its output.
    """
    # Go's default, -mod=readonly, enforces the pinned versions: a mismatch with go.sum is an error, not an update.
    environment = {"GOGC": GOGC, **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    with subprocess.Popen(
        ["go", *arguments], cwd=module, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=_apart,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate()
        except BaseException:
            # On SIGINT `go` removes its temporary files.
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise
    if process.returncode:
        tail = " | ".join(err.strip().splitlines()[-5:])
        raise TestbedError(f"`go {arguments[0]}` failed in {module.name} (exit code {process.returncode}): {tail}")
    return out


def _apart() -> None:
    """Gives `go` its own process group, and resets SIGINT, which a background job ignores; it ends compilers too."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _render(kubectl: Path, directory: Path, component: str) -> list[dict[str, object]]:
    """Renders a directory offline, and parses the result without a YAML library."""
    if (directory / "kustomization.yaml").exists():
        rendered = _kubectl(kubectl, ["kustomize", str(directory)], "")
    else:
        rendered = "\n---\n".join(each.read_text("utf-8") for each in sorted(directory.glob("*.yaml")))
    label = f"{COMPONENT_LABEL}={component}"
    # --local sends no request; the empty kubeconfig makes one impossible.
    stream = _kubectl(kubectl, ["label", "--local", "-f", "-", "-o", "json", label], rendered)
    decoder, position, objects = json.JSONDecoder(), 0, []
    while position < len(stream):
        value, position = decoder.raw_decode(stream, position)
        objects.append(value)
        position += len(stream[position:]) - len(stream[position:].lstrip())
    if not objects:
        raise TestbedError(f"{directory} rendered to nothing")
    return objects


def _kubectl(kubectl: Path, arguments: list[str], text: str) -> str:
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run([str(kubectl), *arguments], input=text, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"kubectl {arguments[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _key(name: str) -> str:
    digest = hashlib.sha256(repr((GCFLAGS, LDFLAGS, COMPONENTS[name])).encode())
    for path in sorted(path for path in (GO_MODULES / COMPONENTS[name].source).rglob("*") if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
