"""Compares stepset's operator with Airflow's KubernetesJobOperator.

The benchmark measures the import of the operator, and the parsing of a DAG file that contains the operator.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import Row

PYTHON = str(Path(sys.executable).parent / "python")
_OURS = "from stepset_airflow import DistributedTrainOperator as Train"
_THEIRS = "from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator as Train"
_OURS_ARGS = 'framework="torch", num_nodes=2, image="train:1", script="train.py", namespace="ml"'
_THEIRS_ARGS = 'name="train", image="train:1", cmds=["torchrun", "train.py"], namespace="ml", parallelism=2'
_DAG = """
{imports}
with DAG("bench"):
    for k in range(100):
        Train(task_id=f"train_{{k}}", {args})
"""


_TIMED = """
import time
from airflow.sdk import DAG, BaseOperator
start = time.process_time()
{code}
print(time.process_time() - start)
"""


def _cpu(code: str, env: dict[str, str]) -> float:
    """Returns the CPU seconds that some code takes in a new process that has already imported `airflow.sdk`."""
    done = subprocess.run([PYTHON, "-c", _TIMED.format(code=code)], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


_VALIDATION = f"""
{_OURS}
from stepset_airflow.parsing.arguments import check_values
with DAG("bench"):
    task = Train(task_id="train", {_OURS_ARGS})
    values = task._arguments()
    start = time.process_time()
    for _ in range(1000):
        check_values(Train, values, {{}}, sets_function=False)
"""


def rows(runs: int = 5) -> list[Row]:
    """Returns three rows: one for the import, one for the parsing, and one for the validation during the parsing.

    The first two rows contain CPU seconds and their ratio. The time of importing `airflow.sdk` is not included.
    """
    samples: dict[str, list[tuple[float, float]]] = {"import": [], "parse": []}
    validations: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        for _ in range(runs):
            samples["import"].append((_cpu(_OURS, env), _cpu(_THEIRS, env)))
            ours, theirs = (
                _cpu(_DAG.format(imports=imports, args=args), env)
                for imports, args in ((_OURS, _OURS_ARGS), (_THEIRS, _THEIRS_ARGS))
            )
            validations.append(_cpu(_VALIDATION, env))
            samples["parse"].append((ours, theirs))
    rows = []
    for what, key, limit in (
        ("`import stepset_airflow` on top of `airflow.sdk`, against KubernetesJobOperator", "import", 0.3),
        ("parse of a DAG file with 100 train tasks, against KubernetesJobOperator", "parse", None),
    ):
        ratio = statistics.median(ours / theirs for ours, theirs in samples[key])
        mine, other = (statistics.median(figures) for figures in zip(*samples[key], strict=True))
        budget = "<= 0.5 x" + (f" and <= {limit} s" if limit else "")
        met = ratio <= 0.5 and (limit is None or mine <= limit)
        rows.append(Row(what, f"{ratio:.2f} x ({mine:.2f} s against {other:.2f} s CPU)", budget, met))
    # Each value is the number of seconds for 1,000 validations, which equals the number of milliseconds for one.
    milliseconds = statistics.median(validations)
    what = "validation of a train task when its DAG file is parsed"
    return [*rows, Row(what, f"{milliseconds:.2f} ms CPU", "<= 1 ms CPU", milliseconds <= 1)]
