"""Checks this machine: the directory of the runs, shared memory, GPUs and ports. Also reports installed versions."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import stepset
from stepset.backends.local.ports.guard import confinement
from stepset.backends.local.runs.settings import HOME_VARIABLE, home_directory
from stepset.backends.local.variables.gpus import visible_gpus
from stepset.cli.doctor.findings import Finding, finding
from stepset.errors import InfrastructureError
from stepset.frameworks import FRAMEWORKS
from stepset.trusted_path import check_path

_LEAST_DISK, _LEAST_SHM = 1 << 30, 1 << 28
"""The required free space on the disk of the logs, and the required size of shared memory, in bytes.

If less space is available, a run is likely to fail."""


def machine_findings(environ: Mapping[str, str], *, trains: bool) -> Iterator[Finding]:
    """Yields the result of each check of this machine. The checks import no framework.

    Args:
        trains: whether runs use the environment of this machine. If False, the result contains no frameworks.
    """
    yield finding("versions", "ok", f"stepset {stepset.__version__}, Python {platform.python_version()}")
    if trains:
        yield _frameworks()
    yield _runs(environ)
    yield from _shared_memory()
    yield _gpus(environ)
    yield _ports()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _frameworks() -> Finding:
    packages = [name for each in FRAMEWORKS.values() for name in each.packages]
    found = [f"{name} {number}" for name in packages if (number := _version(name))]
    if not found:
        return finding("frameworks", "note", "none is installed in this environment", "pip install torch")
    return finding("frameworks", "ok", ", ".join(found))


def _runs(environ: Mapping[str, str]) -> Finding:
    runs = home_directory(environ) / "runs"
    try:
        check_path(runs, HOME_VARIABLE)
    except InfrastructureError as error:
        return finding("runs", "problem", str(error), "export STEPSET_HOME=DIR")
    place = next((each for each in (runs, *runs.parents) if each.exists()), runs)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return finding(
            "runs", "problem", f"{place} is not a directory that you may write to", "export STEPSET_HOME=DIR"
        )
    free = shutil.disk_usage(place).free
    if free < _LEAST_DISK:
        return finding("runs", "problem", f"{runs}: {free >> 20} MiB are free", "stepset prune --older-than 1d")
    return finding("runs", "ok", f"{runs}: {free >> 30} GiB are free")


def _shared_memory() -> Iterator[Finding]:
    place = Path("/dev/shm")
    if not place.is_dir():  # not Linux
        return
    size = shutil.disk_usage(place).total
    if size < _LEAST_SHM:
        fix = f"mount -o remount,size=2G {place}"
        yield finding("shared memory", "problem", f"{place} has {size >> 20} MiB; data loaders and NCCL need more", fix)
    else:
        yield finding("shared memory", "ok", f"{place} has {size >> 20} MiB")


def _gpus(environ: Mapping[str, str]) -> Finding:
    gpus, torch = visible_gpus(environ), _version("torch")
    if not gpus:
        return finding("GPUs", "ok", "this machine has none, or CUDA_VISIBLE_DEVICES hides them")
    if torch and torch.endswith("+cpu"):
        return finding("GPUs", "problem", f"{len(gpus)}, which torch {torch} cannot use", "pip install --upgrade torch")
    return finding("GPUs", "ok", f"{len(gpus)}: {', '.join(gpus)}")


def _ports() -> Finding:
    obstacle = confinement().obstacle
    if obstacle:
        text = f"the ports of local runs accept connections from other hosts: {obstacle}"
        return finding("ports", "note", text, "run on a network that you trust")
    return finding("ports", "ok", "the ports of local runs are confined to this machine")
