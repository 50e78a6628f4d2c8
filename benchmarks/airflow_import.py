"""Importing stepset's operator, and parsing DAGs of them, against Airflow's own KubernetesJobOperator."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import Row, timed

PYTHON = str(Path(sys.executable).parent / "python")
_OURS = "from stepset_airflow import DistributedTrainOperator as Train"
_THEIRS = "from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator as Train"
_OURS_ARGS = 'framework="torch", num_nodes=2, image="train:1", script="train.py", namespace="ml"'
_THEIRS_ARGS = 'name="train", image="train:1", cmds=["torchrun", "train.py"], namespace="ml", parallelism=2'
_DAG = """
from airflow.sdk import DAG
{imports}
with DAG("bench"):
    for k in range(100):
        Train(task_id=f"train_{{k}}", {args})
"""


def _cpu(code: str, env: dict[str, str], runs: int) -> list[float]:
    return [timed([PYTHON, "-c", code], env).cpu for _ in range(runs)]


def rows(runs: int = 5) -> list[Row]:
    """CPU seconds on top of `airflow.sdk`, and their ratio."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        base = "from airflow.sdk import DAG, BaseOperator"
        figures = {}
        for name, imports, args in (("ours", _OURS, _OURS_ARGS), ("theirs", _THEIRS, _THEIRS_ARGS)):
            figures[f"import {name}"] = _cpu(f"{base}\n{imports}", env, runs)
            figures[f"parse {name}"] = _cpu(_DAG.format(imports=imports, args=args), env, runs)
        floor = statistics.median(_cpu(base, env, runs))
        over = {name: statistics.median(samples) - floor for name, samples in figures.items()}
        imported = over["import ours"] / over["import theirs"]
        parsed = over["parse ours"] / over["parse theirs"]
        return [
            Row(
                "`import stepset_airflow` on top of `airflow.sdk`, against KubernetesJobOperator",
                f"{imported:.2f} x ({over['import ours']:.2f} s against {over['import theirs']:.2f} s CPU)",
                "<= 0.5 x and <= 0.3 s",
                imported <= 0.5 and over["import ours"] <= 0.3,
            ),
            Row(
                "parse of a DAG file with 100 train tasks, against KubernetesJobOperator",
                f"{parsed:.2f} x ({over['parse ours']:.2f} s against {over['parse theirs']:.2f} s CPU)",
                "<= 0.5 x",
                parsed <= 0.5,
            ),
        ]
