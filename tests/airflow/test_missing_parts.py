"""A job file, a script or an image that does not exist is an import error when Airflow parses the DAG file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow

PARSE = """\
import json, sys, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
print("ERRORS", json.dumps({str(path): str(error) for path, error in bag.import_errors.items()}))
print("DAGS", json.dumps(sorted(bag.dags)))
"""
FACTORY = """\
from airflow.sdk import DAG
from stepset_airflow import DistributedTrainOperator
def create(name, script):
    with DAG(name, schedule=None) as dag:
        DistributedTrainOperator(task_id="train", backend="local", script=script)
    return dag
"""
LOCAL = 'task_id="train", backend="local"'
CLUSTER = 'task_id="train"'
COMPLETE = {
    "script": f'DistributedTrainOperator({LOCAL}, script="train.py")',
    "template": f'DistributedTrainOperator({LOCAL}, script="{{{{ params.x }}}}")',
    "absolute": f'DistributedTrainOperator({LOCAL}, script="/nowhere/train.py")',
    "in_code": f'DistributedTrainOperator({LOCAL}, script="main.py", code="src")',
    "job_of_an_earlier_task": f'DistributedTrainOperator({LOCAL}, job="/nowhere/job.yaml")',
    "job_file": f'DistributedTrainOperator({LOCAL}, job="jobs/job.yaml")',
    "image": f'DistributedTrainOperator({CLUSTER}, script="train.py", image="train:1")',
    "image_template": f'DistributedTrainOperator({CLUSTER}, script="train.py", image="{{{{ params.image }}}}")',
    "backend_template": f'DistributedTrainOperator({CLUSTER}, script="train.py", backend="{{{{ params.backend }}}}")',
    "image_of_job": f'DistributedTrainOperator({CLUSTER}, job={{"command": ["true"], "image": "train:1"}})',
    "mapped": f'DistributedTrainOperator.partial({CLUSTER}, script="train.py").expand(image=["a", "b"])',
    "mapped_kwargs": f'DistributedTrainOperator.partial({CLUSTER}, image="a").expand_kwargs([{{"job": "/a.yaml"}}])',
    "mapped_code": f'DistributedTrainOperator.partial({LOCAL}, script="main.py").expand(code=["a", "b"])',
    "mapped_job": f'DistributedTrainOperator.partial({CLUSTER}).expand(job=["/a.yaml", "/b.yaml"])',
    "mapped_result": f'DistributedTrainOperator.partial({CLUSTER}).expand_kwargs(task(lambda: [], task_id="a")())',
    "mapped_default": f'DistributedTrainOperator.partial({CLUSTER}, script="train.py", default_args={{"image": "a"}})'
    '.expand(args=[["1"]])',
    "mapped_function": '@task.distributed_train(image="train:1")\n    def train(x): pass\n    train.expand(x=[1, 2])',
    "function": '@task.distributed_train(backend="local")\n    def train(): pass\n    train()',
    "factory": 'DAGS["ok"] = create("ok", "train.py")',
}
NO_JOB = "job: no such file: "
NO_SCRIPT, NO_IMAGE = "script: no such file: ", "image: is missing; pods need one"
INCOMPLETE = {
    "both": (f'DistributedTrainOperator({CLUSTER}, script="jobs/train.py")', [NO_SCRIPT, NO_IMAGE]),
    "every_kind": (
        f'DistributedTrainOperator({CLUSTER}, script="x.py", epochs=3, checkpoint_dir="c", log_ranks=9, on_orphan="")',
        [
            "epochs: unknown parameter",
            "on_orphan: ",
            "checkpoint_dir: ",
            "log_ranks: the job has",
            NO_SCRIPT,
            NO_IMAGE,
        ],
    ),
    "values": (
        f'DistributedTrainOperator({CLUSTER}, script="x.py", checkpoint_dir="c", log_ranks=9)',
        ["checkpoint_dir: ", "log_ranks: the job has", NO_SCRIPT, NO_IMAGE],
    ),
    "kpo": (
        f'DistributedTrainOperator({CLUSTER}, script="x.py", get_logs=True, num_nodes=0)',
        ["get_logs: ", "num_nodes: ", NO_SCRIPT, NO_IMAGE],
    ),
    "misspelled": (
        f'DistributedTrainOperator({CLUSTER}, script="x.py", imag="a", log_rank=9)',
        ["imag: unknown", "log_rank: unknown", NO_SCRIPT],
    ),
    "mapped_values": (
        f'DistributedTrainOperator.partial({CLUSTER}, script="x.py", num_nodes=0, epochs=3).expand(args=[["1"]])',
        ["epochs: unknown", "num_nodes: ", NO_SCRIPT, NO_IMAGE],
    ),
    "local": (f'DistributedTrainOperator({LOCAL}, script="jobs/none.py")', [NO_SCRIPT]),
    "directory": (f'DistributedTrainOperator({LOCAL}, script="jobs")', [NO_SCRIPT]),
    "command": (f'DistributedTrainOperator({LOCAL}, script="python train.py --lr 3")', [NO_SCRIPT]),
    "job_without": (f'DistributedTrainOperator({LOCAL}, job={{"script": "none.py"}})', [NO_SCRIPT]),
    "no_job_file": (f'DistributedTrainOperator({LOCAL}, job="nowhere.yaml")', [NO_JOB]),
    "job_file_and_name": (
        f'DistributedTrainOperator({LOCAL}, job="jobs/jop.yaml", checkpoint_dir="c", script="x.py")',
        ["checkpoint_dir: ", NO_JOB],
    ),
    "mapped_job_file": (f'DistributedTrainOperator.partial({LOCAL}).expand(job=["nowhere.yaml"])', [NO_JOB]),
    "module": (f'DistributedTrainOperator({CLUSTER}, module="train")', [NO_IMAGE]),
    "function_without": ("@task.distributed_train(num_nodes=2)\n    def train(): pass\n    train()", [NO_IMAGE]),
    "mapped_without": (
        f'DistributedTrainOperator.partial({CLUSTER}, script="trian.py").expand(args=[["1"], ["2"]])',
        [NO_SCRIPT, NO_IMAGE],
    ),
    "mapped_image": (
        f'DistributedTrainOperator.partial({CLUSTER}, script="trian.py").expand(image=["a", "b"])',
        [NO_SCRIPT],
    ),
    "mapped_program": (f'DistributedTrainOperator.partial({LOCAL}).expand(args=[["1"]])', ["no program is given"]),
    "mapped_kwargs_without": (
        f'DistributedTrainOperator.partial({CLUSTER}, image="a").expand_kwargs([{{"job": "/a.yaml"}}, {{"args": []}}])',
        ["no program is given"],
    ),
    "mapped_script": (f'DistributedTrainOperator.partial({CLUSTER}, image="a").expand(script=["x.py"])', [NO_SCRIPT]),
    "mapped_function_without": (
        "@task.distributed_train(num_nodes=2)\n    def train(x): pass\n    train.partial().expand(x=[1, 2])",
        [NO_IMAGE],
    ),
    "factory_without": ('DAGS["bad"] = create("bad", "factory.py")', [NO_SCRIPT]),  # exists beside factory.py
}


def parsed(directory: Path, tasks: dict[str, str], backend: str) -> dict[str, list[str]]:
    """Parses a DAG file for each task with Airflow, in a process of its own; returns the problems of each."""
    dags, lib = directory / "dags", directory / "lib"
    for each in (dags / "jobs", lib):
        each.mkdir(parents=True)
    (dags / "train.py").write_text("")
    (dags / "jobs/job.yaml").write_text("script: beside.py\n")
    (dags / "jobs/beside.py").write_text("")
    (lib / "factory.py").write_text(FACTORY)
    for name, task in tasks.items():
        head = "from airflow.sdk import DAG, task\nfrom stepset_airflow import DistributedTrainOperator\n"
        made = "from factory import create\nDAGS = globals()\n" if "create(" in task else f'with DAG("{name}"):\n    '
        (dags / f"dag_{name}.py").write_text(f"{head}{made}{task}\n")
    path = os.pathsep.join([str(lib), *sys.path])
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW__STEPSET__BACKEND": backend,
        "PYTHONPATH": path,
    }
    command = [sys.executable, "-c", PARSE, str(dags)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("ERRORS ", "DAGS ")))
    assert lines.keys() == {"ERRORS", "DAGS"}, done.stdout + done.stderr
    errors = {Path(file).stem.removeprefix("dag_"): text for file, text in json.loads(lines["ERRORS"]).items()}
    assert len(errors) + len(json.loads(lines["DAGS"])) == len(tasks), done.stdout
    place = re.compile(r".*?, task 'train'(, element \d+)?: ")
    return {
        name: [place.sub("", line, count=1) for line in errors.get(name, "").splitlines() if place.match(line)]
        for name in tasks
    }


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The problems of every DAG file, with the cluster as the default backend."""
    tasks = {**COMPLETE, **{name: task for name, (task, _) in INCOMPLETE.items()}}
    return parsed(tmp_path_factory.mktemp("cluster"), tasks, "kubernetes")


@pytest.mark.parametrize("name", COMPLETE)
def test_what_exists_or_is_not_known_is_not_reported(on_cluster: dict[str, list[str]], name: str) -> None:
    assert on_cluster[name] == []


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_is_missing_is_reported(on_cluster: dict[str, list[str]], name: str) -> None:
    found, expected = on_cluster[name], INCOMPLETE[name][1]
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_the_error_names_the_file_and_the_directory_of_the_dag_file(on_cluster: dict[str, list[str]]) -> None:
    path, _, rest = on_cluster["both"][0].removeprefix(NO_SCRIPT).partition("; ")
    assert path.endswith("/dags/jobs/train.py")
    assert rest == f"paths are relative to {path.removesuffix('/jobs/train.py')}; for a script in the image use command"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("local", "paths are relative to "),
        ("directory", "this is a directory; give the path of a script in it"),
        ("command", 'a script is only a path; write the path "train.py", and the args ["--lr", "3"]'),
    ],
)
def test_the_remedy_is_that_of_the_mistake(on_cluster: dict[str, list[str]], name: str, remedy: str) -> None:
    (line,) = on_cluster[name]
    assert line.partition("; ")[2].startswith(remedy)
    assert "image" not in line


def test_a_dag_file_that_python_executes_is_checked_too(tmp_path: Path) -> None:
    dag_file, other = tmp_path / "dag_file.py", tmp_path / "other.py"
    head = "from airflow.sdk import DAG\nfrom stepset_airflow import DistributedTrainOperator\n"
    dag_file.write_text(f'{head}with DAG("nightly"):\n    DistributedTrainOperator({LOCAL}, script="trian.py")\n')
    other.write_text("import dag_file\n")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home")}
    ends = {
        file.name: subprocess.run(
            [sys.executable, "-W", "ignore", file.name], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        for file in (dag_file, other)
    }
    assert f"{NO_SCRIPT}{tmp_path / 'trian.py'}; " in ends["dag_file.py"].stderr
    # The directory of a DAG is not known in a program that only imports the DAG file.
    assert ends["other.py"].returncode == 0, ends["other.py"].stderr


def test_no_image_is_needed_if_local_is_the_default_backend(tmp_path: Path) -> None:
    assert parsed(tmp_path, {"module": INCOMPLETE["module"][0]}, "local") == {"module": []}
