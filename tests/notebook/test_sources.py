"""What `stepset.run` accepts beside functions: scripts, job files, mappings and TrainingJobs; and what it rejects."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import stepset
from stepset.job_source.request import JobSource, job_of
from stepset.job_source.unshipped import unshipped_notes

pytestmark = pytest.mark.local

SCRIPT = """\
import json
import os
import sys
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump([os.environ["STEPSET_NUM_NODES"], *sys.argv[1:]], file)
"""


@pytest.fixture
def script(tmp_path: Path, home: Path) -> Path:
    """A script whose result is the number of nodes and its arguments."""
    path = tmp_path / "code" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def test_the_path_of_a_script(script: Path) -> None:
    status = stepset.run(script, framework="plain", num_nodes=2, args=["--epochs", "3"])
    assert status.result == ["2", "--epochs", "3"]
    assert status.name.startswith("train")


def test_the_path_of_a_script_as_text_is_relative_to_base_dir(script: Path) -> None:
    assert stepset.run("train.py", framework="plain", base_dir=script.parent).result == ["1"]


def test_the_path_of_a_script_is_relative_to_the_current_directory(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    assert stepset.submit("train.py", framework="plain").result() == ["1"]


def test_fields_of_the_call_replace_those_of_a_mapping(script: Path) -> None:
    job = {"framework": "plain", "script": "train.py", "num_nodes": 1, "args": ["a"]}
    assert stepset.run(job, base_dir=script.parent, num_nodes=2).result == ["2", "a"]
    assert job["num_nodes"] == 1


def test_fields_of_the_call_replace_those_of_a_job_file_and_of_a_training_job(script: Path) -> None:
    file = script.parent / "job.yaml"
    file.write_text(
        dedent("""\
            name: filed
            framework: plain
            script: train.py
            args: [a]
        """)
    )
    assert stepset.run(file, args=["b"]).result == ["1", "b"]
    assert stepset.run(stepset.load_job(file), base_dir=script.parent, args=["c"]).result == ["1", "c"]


def test_entries_of_env_and_labels_are_added_to_those_of_the_job(script: Path) -> None:
    fields = {"env": {"OTHER": "1", "GONE": None}, "labels": {"team": "b"}}
    job = {"framework": "plain", "command": ["true"], "env": {"TAG": "file", "GONE": "x"}, "labels": {"run": "a"}}
    file = script.parent / "job.json"
    file.write_text(json.dumps(job))
    parsed = stepset.TrainingJob.model_validate(job)
    for source in (file, job, parsed):
        variables = {row.variable: row.value for row in stepset.explain(source, **fields) if row.origin == "job"}
        assert variables == {"TAG": "file", "OTHER": "1"}
    assert stepset.run(file, **fields).labels == {"run": "a", "team": "b"}
    numbers = stepset.run(file, labels={"lr": 0.1, "steps": 20, "amp": True, "run": None}).labels
    assert numbers == {"lr": "0.1", "steps": "20", "amp": "true"}
    with pytest.raises(stepset.BadInputError, match=r"^env: "):
        stepset.explain({**job, "env": ["TAG"]}, env={"OTHER": "1"})


def test_the_value_none_removes_an_entry_from_every_kind_of_job() -> None:
    def print_nothing() -> None: ...

    jobs: tuple[JobSource, ...] = ({"command": ["true"]}, {"command": ["true"], "env": None}, "train.py", print_nothing)
    for job in jobs:
        loaded = job_of(job, {"env": {"A": None, "B": "2"}, "labels": {"c": None}})
        assert (list(loaded.env), loaded.labels) == (["B"], {})


def test_an_invalid_field_of_the_call_names_the_field(script: Path) -> None:
    with pytest.raises(stepset.BadInputError, match=r"^num_nodes: "):
        stepset.run(script, num_nodes=-1)
    with pytest.raises(stepset.BadInputError, match="unknown argument 'num_node'; did you mean 'num_nodes'"):
        stepset.run({"script": "train.py"}, num_node=2)


@pytest.mark.parametrize("call", [stepset.run, stepset.submit])
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"epochs": "secret"}, "epochs is a parameter of _train; pass args={'epochs': ...}"),
        ({"namespace": "ml"}, "unknown argument 'namespace'; pass cluster=stepset.ClusterOptions(namespace='ml')"),
        ({"queue": "team"}, "unknown argument 'queue'; did you mean 'scheduling.queue_name'?"),
        ({"max_restarts": 2}, "unknown argument 'max_restarts'; did you mean 'restart.max_restarts'?"),
        ({"target": "job"}, "unknown argument 'target'; pass cluster=stepset.ClusterOptions(target='job')"),
    ],
)
def test_the_error_of_an_unknown_argument_contains_the_right_one(
    call: Callable[..., object], fields: dict[str, Any], problem: str, home: Path
) -> None:
    with pytest.raises(stepset.BadInputError) as caught:
        call(_train, args=[1], **fields)
    assert str(caught.value) == problem
    assert stepset.list_runs() == []


@pytest.mark.parametrize("call", [stepset.explain, stepset.render])
def test_a_function_without_the_parameter_cluster_does_not_suggest_it(call: Callable[..., object]) -> None:
    with pytest.raises(stepset.BadInputError, match="unknown argument 'kubeconfig'") as caught:
        call({"command": ["true"]}, kubeconfig="file")
    assert "ClusterOptions" not in str(caught.value)


def test_unshipped_modules_are_not_searched_without_the_path_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "module_elsewhere.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))

    file = tmp_path / "cell.py"
    file.write_text(
        "import module_elsewhere\n"
        "def train():\n    import module_elsewhere\n"
        "def uses_the_import():\n    return module_elsewhere.VALUE\n"
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(file.read_text(), file, "exec"), names)
    train = names["train"]
    [note] = unshipped_notes(train)
    assert "module_elsewhere" in note
    [note] = unshipped_notes(names["uses_the_import"])
    assert "module_elsewhere" in note
    monkeypatch.setattr(sys, "executable", None)  # as in an embedded interpreter
    assert unshipped_notes(train) == ()


class Trainer:
    """Not a function, although it can be called."""

    def fit(self) -> None:
        """A method needs its object, which is not shipped."""


def test_the_fields_can_contain_the_program(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/main.py").write_text("import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('7')")
    monkeypatch.chdir(tmp_path)
    assert stepset.run(module="trainer.main", code=".", framework="plain").result == 7
    with pytest.raises(stepset.BadInputError, match="command"):
        stepset.run(num_nodes=2)


def _train(epochs: int) -> int:
    return epochs


async def _coroutine() -> None:
    """A coroutine cannot run as a rank's program."""


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (42, "job: 42 is neither a mapping nor the path of a job file"),
        (None, "job: missing; give a function"),
        ("missing.py", "missing.py"),
        ("missing.yaml", "missing.yaml"),
        (Trainer, "job: the class Trainer is not a function; define a function that creates the object"),
        (
            Trainer().fit,
            "job: the method fit cannot be shipped; define a function that creates the object and calls fit",
        ),
        (
            functools.lru_cache(_train),
            "job: the function _train is wrapped in an object of type _lru_cache_wrapper; remove the decorator",
        ),
        (functools.partial(_train, 3), "job: functools.partial cannot be shipped; give the function _train, and its"),
        (print, "job: print is not a function that is defined with def; define a function that calls it"),
        (_coroutine, "function: _coroutine is an async function, which the ranks do not await; define it with def"),
    ],
)
def test_what_is_no_job_is_rejected_with_one_line(job: object, error: str, home: Path) -> None:
    with pytest.raises(stepset.BadInputError) as caught:
        stepset.run(job)  # type: ignore[arg-type]  # wrong types are the test
    assert error in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert stepset.list_runs() == []


def test_a_mapping_for_the_only_parameter_is_passed_in_a_list() -> None:
    with pytest.raises(stepset.BadInputError) as caught:
        stepset.render(_train, args={"lr": 0.1, "steps": 2}, image="a:1")
    assert str(caught.value).endswith("to pass the mapping as epochs, give args=[{...}]")
