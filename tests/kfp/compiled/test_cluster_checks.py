"""Warnings and errors about what a pipeline lacks to run on a cluster, as `kfp dsl compile` prints them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

from stepset.errors import BadInputError

HEAD = """\
from kfp import dsl, local
from stepset_kfp import cleanup_training, distribute, distributed_train

def workspace(modes=None):
    patch = {"accessModes": [modes]} if modes else {}
    config = dsl.WorkspaceConfig("1Gi", dsl.KubernetesWorkspaceConfig(pvcSpecPatch=patch))
    return dsl.PipelineConfig(workspace=config)

@dsl.component(base_image="registry.example/own:1")
def own(data: str) -> str:
    return data

CHECKPOINTS = f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/checkpoints"
TRAINED = {"module": "train", "image": "registry.example/train:1"}
"""
UNPUBLISHED = "is not published, so the step cannot start on a cluster"


def program_of(body: str, config: str = "None", before: str = "") -> str:
    """Returns a pipeline file; KFP compiles the pipeline when the file is imported."""
    decorator = f'@dsl.pipeline(name="checks", pipeline_config={config})'
    return f"{HEAD}\n{before}\n{decorator}\ndef pipeline(nodes: int = 2):\n{indent(body, '    ')}\n"


def compiled(tmp_path: Path, body: str, image: str = "", before: str = "") -> tuple[int, str]:
    """Compiles a pipeline with this body in a process of its own; returns its exit code and its standard error."""
    (tmp_path / "pipeline.py").write_text(program_of(body, before=before))
    command = [sys.executable, "-W", "ignore", str(tmp_path / "pipeline.py")]
    done = subprocess.run(
        command, env={**os.environ, "STEPSET_KFP_IMAGE": image}, cwd=tmp_path, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def test_a_pipeline_with_the_unpublished_image_is_reported_once(tmp_path: Path) -> None:
    body = (
        "with dsl.ExitHandler(cleanup_training()):\n    distributed_train(**TRAINED)\n    distributed_train(**TRAINED)"
    )
    code, printed = compiled(tmp_path, body)
    assert code == 0
    assert printed.count(UNPUBLISHED) == 1
    assert printed.startswith("task cleanup-training: the step's image stepset/kfp-python:")
    assert "set STEPSET_KFP_IMAGE" in printed


def test_a_component_of_the_user_is_reported_when_a_task_of_it_is_created(tmp_path: Path) -> None:
    code, printed = compiled(tmp_path, 'distribute(own)(data="a")')
    assert (code, printed.count(UNPUBLISHED)) == (0, 1)
    assert printed.startswith("task own: ")


@pytest.mark.parametrize(
    ("image", "before"),
    [
        ("registry.example/python-stepset:1", ""),
        ("stepset/kfp-python:0.1.0", ""),  # a cluster whose nodes have an image of this name
        ("", "local.init(local.SubprocessRunner(use_venv=False))"),
    ],
    ids=["own image", "image of the same name", "local runner"],
)
def test_nothing_is_reported_without_reason(tmp_path: Path, image: str, before: str) -> None:
    assert compiled(tmp_path, "distributed_train(**TRAINED)", image=image, before=before) == (0, "")


@pytest.mark.parametrize("venv", [True, False])
def test_a_local_runner_with_virtual_environments_is_reported_once(tmp_path: Path, venv: bool) -> None:
    body = 'distributed_train(**TRAINED)\ndistributed_train(**TRAINED)\ndistribute(own)(data="a")'
    code, printed = compiled(tmp_path, body, before=f"local.init(local.SubprocessRunner(use_venv={venv}))")
    assert (code, printed.count("(use_venv=False), which runs the step in the current environment")) == (0, int(venv))


@dataclass
class Here:
    """Compiles pipelines in this process."""

    directory: Path
    log: pytest.LogCaptureFixture

    def compiled(self, body: str, config: str = "None") -> list[str]:
        """Returns the warnings, except that about the step's image; raises like the pipeline."""
        path = self.directory / "pipeline.py"
        path.write_text(program_of(body, config))
        self.log.clear()
        exec(compile(path.read_text(), str(path), "exec"), {})
        return [text for text in self.log.messages if UNPUBLISHED not in text]


@pytest.fixture
def here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Here:
    return Here(tmp_path, caplog)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ('module="train"', True),
        ('job={"module": "train"}', True),
        ('job={"module": "train", "image": "i:1"}', False),
        ('module="train", backend="local"', False),
    ],
)
def test_a_job_without_an_image_is_reported(here: Here, arguments: str, reported: bool) -> None:
    warnings = here.compiled(f'distributed_train(name="digits", {arguments})')
    assert [text.partition(", and")[0] for text in warnings] == [
        "task distributed-train (digits): the job has no image"
    ] * reported


@pytest.mark.parametrize(
    ("settings", "reported"), [("", True), (', shared_dir="/mnt/shared"', False), (', backend="local"', False)]
)
def test_a_distributed_component_without_a_shared_directory_is_reported(
    here: Here, settings: str, reported: bool
) -> None:
    warnings = here.compiled(f'distribute(own, num_nodes=2{settings})(data="a")')
    assert [text.partition(", so")[0] for text in warnings] == ["task own: the pipeline has no workspace"] * reported


@pytest.mark.parametrize(
    ("settings", "inputs", "reported"),
    [
        ("", 'data="a"', True),
        ("", 'data=f"{CHECKPOINTS}/a"', False),
        ("", 'data="/kfp-workspace/a"', False),
        ("", "data=own(data=CHECKPOINTS).output", False),  # KFP mounts the workspace if the path is in the workspace
        (', shared_dir="/mnt/shared"', 'data="a"', False),
        (', backend="local"', 'data="a"', False),
    ],
)
def test_a_distributed_task_without_an_input_in_the_workspace_is_reported(
    here: Here, settings: str, inputs: str, reported: bool
) -> None:
    warnings = here.compiled(f"distribute(own{settings})({inputs})", 'workspace("ReadWriteMany")')
    assert [text.partition(", so")[0] for text in warnings] == [
        "task own: no input refers to the pipeline's workspace"
    ] * reported


def test_an_artifact_is_in_the_workspace_only_if_an_importer_downloads_it(here: Here) -> None:
    task = """\
from kfp.dsl import Dataset, Input, Output
@dsl.component(base_image="registry.example/own:1")
def read(data: Input[Dataset], epochs: int): ...
@dsl.component(base_image="registry.example/own:1")
def prepare(data: Output[Dataset]): ...
distribute(read)(epochs=nodes, data={data})
"""
    other, imported = "prepare().output", 'dsl.importer("s3://a/b", Dataset, download_to_workspace=True).output'
    (warning,) = here.compiled(task.format(data=other), 'workspace("ReadWriteMany")')
    assert "pass workspace=dsl.WORKSPACE_PATH_PLACEHOLDER" in warning
    assert here.compiled(task.format(data=imported), 'workspace("ReadWriteMany")') == []


@pytest.mark.parametrize(("inputs", "count"), [("", 1), (", data=CHECKPOINTS", 0)])
def test_a_distributed_component_can_read_the_artifacts_of_a_loop(here: Here, inputs: str, count: int) -> None:
    task = f"""\
from typing import List
from kfp.dsl import Input, Model, Output
@dsl.component(base_image="registry.example/own:1")
def fit(word: str, model: Output[Model]): ...
@dsl.component(base_image="registry.example/own:1")
def merge(models: Input[List[Model]], data: str = "a"): ...
with dsl.ParallelFor(["1", "2"]) as word:
    distribute(own)(data=word)  # a string at run time, so it may be a path in the workspace
    fitted = fit(word=word)
distribute(merge)(models=dsl.Collected(fitted.outputs["model"]){inputs})
"""
    warnings = here.compiled(task, 'workspace("ReadWriteMany")')
    assert [text.partition(":")[0] for text in warnings] == ["task merge"] * count


@pytest.mark.parametrize(
    ("cleanup", "training", "reported"),
    [
        ("", 'distributed_train(**TRAINED, target="job")', "task distributed-train: the run has target job in the st"),
        ("", 'distributed_train(**TRAINED, namespace="ml")', "task distributed-train: the run has target jobset in na"),
        (
            "",
            'distribute(own, target="job", shared_dir="/mnt")(data="a")',
            "task own: the run has target job in the step's",
        ),
        ('target="job"', 'distributed_train(**TRAINED, target="job")', None),
        ("", "distributed_train(**TRAINED)", None),
        ("", 'distributed_train(**TRAINED, target="job", backend="local")', None),
        ("", 'distributed_train(**TRAINED, namespace=f"{nodes}")', None),
        ('run="a"', 'distributed_train(**TRAINED, target="job")', None),
    ],
)
@pytest.mark.parametrize("form", ["with dsl.ExitHandler({cleanup}):\n    {training}", "{training}\n{cleanup}"])
def test_a_training_that_the_cleanup_does_not_select_is_reported(
    here: Here, form: str, cleanup: str, training: str, reported: str | None
) -> None:
    warnings = here.compiled(form.format(cleanup=f"cleanup_training({cleanup})", training=training))
    assert len(warnings) == (reported is not None)
    assert all(text.startswith(str(reported)) and "call cleanup_training(target=" in text for text in warnings)


@pytest.mark.parametrize("later", ["job", "volcano"])
def test_a_training_is_reported_once_even_if_several_cleanups_follow(here: Here, later: str) -> None:
    training = 'distributed_train(**TRAINED, target="job")'
    (text,) = here.compiled(f'{training}\ncleanup_training()\ncleanup_training(target="{later}")')
    assert text == (
        "task distributed-train: the run has target job in the step's namespace, but no cleanup_training so far"
        ' deletes such runs; call cleanup_training(target="job") if the pipeline does not call it later'
    )


@pytest.mark.parametrize(
    "body",
    [
        "distributed_train(**TRAINED, num_nodes=2, checkpoint_dir=CHECKPOINTS)",
        'distributed_train(job={**TRAINED, "num_nodes": 2}, args=["--data", CHECKPOINTS])',
        "distribute(own, num_nodes=2)(data=CHECKPOINTS)",
    ],
)
def test_several_nodes_need_a_workspace_that_all_can_mount(here: Here, body: str) -> None:
    with pytest.raises(BadInputError, match="workspace, but it is ReadWriteOnce; request ReadWriteMany: dsl"):
        here.compiled(body, 'workspace("ReadWriteOnce")')
    (warning,) = here.compiled(body, "workspace()")
    assert "the default of the KFP server, which may allow one node only; request ReadWriteMany: " in warning
    assert here.compiled(body, 'workspace("ReadWriteMany")') == []


@pytest.mark.parametrize(
    "body",
    [
        "distributed_train(**TRAINED, checkpoint_dir=CHECKPOINTS)",
        "distributed_train(**TRAINED, num_nodes=2)",
        "distributed_train(**TRAINED, num_nodes=nodes, checkpoint_dir=CHECKPOINTS)",
        'distributed_train(**TRAINED, num_nodes=2, checkpoint_dir=CHECKPOINTS, backend="local")',
        "distribute(own)(data=CHECKPOINTS)",
        'distribute(own, num_nodes=2, backend="local")(data=CHECKPOINTS)',
        'distribute(own, num_nodes=2, shared_dir="/mnt/shared")(data="a")',
    ],
)
def test_a_workspace_of_one_node_is_enough_if_only_one_node_mounts_it(here: Here, body: str) -> None:
    """A number of nodes that is known only at run time is checked in the step."""
    assert here.compiled(body, 'workspace("ReadWriteOnce")') == []
