"""Runs a deferred task with two pods repeatedly, and records the time at which each task has finished.

The command is finish.py WAY SETTINGS. WAY is `ours` for stepset's operator, or `theirs` for KubernetesJobOperator.
SETTINGS is the JSON that benchmarks/finished.py passes.

KubernetesJobOperator polls every ten seconds. The durations of the runs differ, and are evenly distributed over a range
of ten seconds. Therefore the median shows the average delay that polling causes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.airflow.harness import DAGS, run_to_end

POLL = 10.0
"""The number of seconds between two polls, which is the default of KubernetesJobOperator."""
_RANK = """
import os, pathlib, time
time.sleep({seconds})
pathlib.Path("{mark}-" + os.environ["JOB_COMPLETION_INDEX"]).write_text(str(time.time()))
"""
_IMPORTS = {
    "ours": "from stepset_airflow import DistributedTrainOperator as Train",
    "theirs": "from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator as Train",
}
_DAG = """
import json, pathlib, time
from airflow.sdk import DAG
{imports}

class Timed(Train):
    def execute_complete(self, context, event, **more):
        notified = time.time()
        result = super().execute_complete(context, event, **more)
        pathlib.Path({mark!r}).write_text(json.dumps({{"notified": notified, "finished": time.time()}}))
        return result

with DAG("finish", schedule=None) as dag:
    Timed(**{parameters!r})
"""


def parameters(way: str, code: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of an operator.

    Both operators start the same two pods. All other parameters have the operator's default values.
    """
    both = {"task_id": "train", "namespace": settings["namespace"], "image": settings["image"], "deferrable": True}
    if way == "ours":
        job = {"framework": "plain", "num_nodes": 2, "command": ["python3", "-c", code]}
        return {**both, **job, "pod_template": settings["template"]["node"]}
    pods = {"parallelism": 2, "completions": 2, "completion_mode": "Indexed"}
    # By default, KubernetesJobOperator fails if its pods do not exist immediately.
    waits = {"wait_until_job_complete": True, "discover_pods_retry_number": 1000}
    template = settings["template"]["base"]
    template["spec"]["restartPolicy"] = "Never"
    return {**both, **pods, **waits, "name": "train", "cmds": ["python3", "-c", code], "pod_template_dict": template}


def main(way: str, given: str) -> None:
    """Runs the tasks and writes a file for each run. Raises SystemExit if a task fails."""
    settings = json.loads(given)
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, stdout=subprocess.DEVNULL)
    extra = {"kube_config_path": settings["kubeconfig"]}
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
    path = DAGS / "finish.py"
    for number in range(-1, settings["runs"]):  # the first run imports everything and is not measured
        mark = f"{settings['directory']}/{way}-{number}"
        code = _RANK.format(seconds=2 + POLL * (number * 0.618 % 1), mark=mark)
        text = _DAG.format(imports=_IMPORTS[way], mark=mark, parameters=parameters(way, code, settings))
        path.write_text(text)
        run = run_to_end(path)
        if run.state != "success":
            raise SystemExit(run.explained())


if __name__ == "__main__":
    main(*sys.argv[1:])
