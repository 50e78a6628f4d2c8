"""Compiles the modules that the tests and demos import. Then no test process has to compile these modules.

The Makefile runs this program with the Python of a newly installed environment. The argument is a directory in which
the compiled files are stored for the next checkout. Compiling the whole environment would take four times as long.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

USED = (
    "torch.distributed.run",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.distributed.fsdp",
    "accelerate",
    "lightning",
    "transformers.trainer",
    "deepspeed",
    "deepspeed.runtime.zero.muon.original_muon",
    "torchtune._cli.tune",
    "torchtune.training",
    "jax",
    "xgboost",
    "mlx.core",
    "airflow.models",
    "airflow.api_fastapi.app",
    "airflow.api_fastapi.execution_api.app",
    "airflow.jobs.scheduler_job_runner",
    "airflow.jobs.triggerer_job_runner",
    "kfp",
    "kfp.compiler",
    "kfp.kubernetes",
    "kubernetes.client",
    "kubernetes_asyncio.client",
    "kubeflow_trainer_api.models",
    "psycopg",
    "hypothesis.strategies",
    "xdist.workermanage",
)
"""The modules to import. A module that is not installed in the environment is ignored."""

SITE = Path(sysconfig.get_path("purelib"))


def main(arguments: Sequence[str]) -> None:
    """Unpacks an archive that contains the compiled files of an identical environment.

    If there is no such archive, compiles the modules and writes the archive.
    """
    (directory,) = arguments
    name = f"{Path(sys.prefix).name}-{platform.python_version()}"
    kept = Path(directory, f"{name}-{_key()}.tar")
    if kept.exists() and not subprocess.run(["tar", "-xf", kept, "-C", SITE]).returncode and _is_current():
        return
    _import_all()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # the next checkout compiles the files again
        kept.parent.mkdir(parents=True, exist_ok=True)
        for older in kept.parent.glob(f"{name}-*"):
            older.unlink()
        _keep(kept)


def _key() -> str:
    """Returns a hash of the Python version, the installed packages, and USED. They determine the compiled files."""
    installed = sorted(path.name for path in SITE.glob("*.dist-info"))
    text = "\n".join([sys.version, Path(__file__).read_text(), *installed])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_current() -> bool:
    """Returns whether the compiled files match the sources. Compares modification times, as Python does."""
    compiled = sorted(SITE.rglob(f"__pycache__/*.{sys.implementation.cache_tag}.pyc"))
    some = {path: Path(importlib.util.source_from_cache(path)) for path in compiled[:: len(compiled) // 20 + 1]}
    return bool(some) and all(
        source.exists() and int.from_bytes(path.read_bytes()[8:12], "little") == int(source.stat().st_mtime)
        for path, source in some.items()
    )


def _import_all() -> None:
    sys.dont_write_bytecode = False
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as home:
        os.environ["AIRFLOW_HOME"] = home  # Airflow writes its configuration there when it is imported
        for name in USED:
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(name)


def _keep(kept: Path) -> None:
    """Writes all compiled files to an archive. The archive is replaced atomically."""
    found = "\n".join(str(path.relative_to(SITE)) for path in SITE.rglob("__pycache__"))
    new = kept.with_suffix(f".{os.getpid()}")
    subprocess.run(["tar", "-cf", new, "-C", SITE, "-T", "-"], input=found, text=True, check=True)
    new.rename(kept)


if __name__ == "__main__":
    main(sys.argv[1:])
