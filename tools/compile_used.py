"""Compiles what the tests and demos import, once: where nothing may be written, each process would compile it anew.

Called by the Makefile with an environment's own Python when that has been installed. All of an environment would take
four times as long, for modules that nobody imports.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import tempfile
import warnings

USED = (
    "torch.distributed.run",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "deepspeed",
    "torchtune",
    "jax",
    "xgboost",
    "mlx.core",
    "airflow.models",
    "airflow.jobs.scheduler_job_runner",
    "airflow.jobs.triggerer_job_runner",
    "kfp",
    "kfp.compiler",
    "kubernetes.client",
)
"""Where an environment has no such module, that is no harm."""


def main() -> None:
    """Imports each module, whose compiled form Python keeps."""
    sys.dont_write_bytecode = False
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as home:
        os.environ["AIRFLOW_HOME"] = home  # it writes its configuration where it is imported first
        for name in USED:
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(name)


if __name__ == "__main__":
    main()
