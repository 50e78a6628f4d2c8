"""`distribute(component, ...)` runs a component in many ranks, with the same inputs and outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import List, NamedTuple, Optional, cast  # noqa: UP035  # names that KFP imports into every component

import pytest
from kfp import compiler, dsl
from kfp.dsl import Dataset

from stepset.errors import BadInputError
from stepset_kfp import distribute
from stepset_kfp.ranks.exchange import SharedDirectory, local_path
from stepset_kfp.ranks.main import open_lock, redirect_outputs
from stepset_kfp.step.distributed import program
from tests.kfp.pipelines import run_pipeline


@dsl.component(base_image="python:3.12", install_kfp_package=False)
def count(
    data: dsl.Input[dsl.Dataset], model: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics], add: int = 1
) -> NamedTuple("Outputs", [("total", int), ("words", str)]):
    """Sums `add` over all ranks."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.full((1,), float(add))
    dist.all_reduce(total)
    text = open(data.path).read()  # noqa: PTH123, SIM115
    if dist.get_rank() != 0:
        open(model.path, "w").write("not of rank 0")  # noqa: PTH123, SIM115
    else:
        torch.save({"total": total}, model.path)
        metrics.log_metric("world_size", dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()
    return (int(total.item()), text)


@dsl.component(base_image="python:3.12", install_kfp_package=False)
def prepare(data: dsl.Output[dsl.Dataset]):
    """Writes a dataset."""
    with open(data.path, "w") as file:  # noqa: PTH123
        file.write("seven words of text")


@pytest.mark.local
def test_a_components_outputs_are_those_of_rank_0(tmp_path: Path, home: Path) -> None:
    many = distribute(count, num_nodes=2, procs_per_node=1, log_ranks="all")

    @dsl.pipeline(name="test-distribute")
    def pipeline():
        many(data=prepare().outputs["data"], add=3)

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is None
    output = json.loads(ran.output("count", "executor_output.json").read_text())
    assert output["parameterValues"] == {"total": 6, "words": "seven words of text"}
    assert output["artifacts"]["metrics"]["artifacts"][0]["metadata"] == {"world_size": 2}
    assert b"not of rank 0" not in ran.output("count", "model").read_bytes()


@pytest.mark.local
def test_a_rank_that_fails_fails_the_component(tmp_path: Path, home: Path) -> None:
    @dsl.component(base_image="python:3.12", install_kfp_package=False)
    def fails(number: int):
        import os

        if os.environ["RANK"] == str(number):
            raise ValueError("no luck")

    many = distribute(fails, num_nodes=1, procs_per_node=2, framework={"kind": "torch", "launcher": "none"})

    @dsl.pipeline(name="test-distribute-fails")
    def pipeline():
        many(number=1)

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is not None
    assert "ValueError: no luck" in ran.log


def test_its_inputs_and_outputs_stay_the_same(tmp_path: Path) -> None:
    many = distribute(count, num_nodes=4)
    before, after = count.component_spec, many.component_spec
    assert set(after.inputs) - set(before.inputs) == {"stepset_task_config"}
    assert after.outputs == before.outputs
    assert len(after.task_config_passthroughs) == 6
    assert "stepset_kfp.step.distributed" not in str(count.component_spec.implementation.container), (
        "the component itself is not modified"
    )
    compiler.Compiler().compile(many, str(tmp_path / "many.yaml"))
    assert "python:3.12" in (tmp_path / "many.yaml").read_text(), "the ranks run in its own image"


RATE = 0.1


def scaled(value: float) -> float:
    return value * RATE


def test_names_from_outside_the_function_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    @dsl.component(base_image="python:3.12")
    def outside(data: dsl.Input[dsl.Dataset], rate: float = 0.1) -> float:
        return scaled(rate) + len(Path(data.path).read_text())

    @dsl.component(base_image="python:3.12", additional_funcs=[scaled])
    def added(data: dsl.Input[Dataset], names: List[str]) -> float:  # noqa: UP006
        import os

        found: Optional[str] = os.environ.get("A")  # noqa: UP045
        return scaled(len(cast(str, found)))

    distribute(outside, num_nodes=2, image="registry.example/own:1")
    assert caplog.messages == [
        "component outside: the function uses names that it does not define: Path, scaled; a component contains only"
        " the source of its function, so import or define them inside the function"
    ]
    caplog.clear()
    distribute(added, num_nodes=2, image="registry.example/own:1")
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "component added: the function uses names that it does not define: RATE"
    ]
    caplog.clear()
    distribute(count, num_nodes=2, image="registry.example/own:1")
    assert caplog.messages == []


def test_other_components_and_invalid_settings_are_refused() -> None:
    @dsl.container_component
    def other():
        return dsl.ContainerSpec(image="busybox", command=["true"])

    with pytest.raises(BadInputError, match="not a lightweight Python component"):
        distribute(other, num_nodes=2)
    with pytest.raises(BadInputError, match="did you mean 'num_nodes'"):
        distribute(count, num_node=2)
    with pytest.raises(BadInputError, match="script: no such setting"):
        distribute(count, script="train.py")
    with pytest.raises(BadInputError, match=r"workdir: no such setting; call os\.chdir in the function"):
        distribute(count, workdir="src")
    with pytest.raises(BadInputError, match="num_nodes: 0 is too small"):
        distribute(count, num_nodes=0)
    with pytest.raises(BadInputError, match="shared_dir: 'x' is not an absolute path; start it with '/'"):
        distribute(count, shared_dir="x")

    with pytest.raises(BadInputError, match="num_nodes: settings of distribute are constants"):

        @dsl.pipeline(name="test-later")
        def pipeline(nodes: int):
            distribute(count, num_nodes=nodes)

    with pytest.raises(
        BadInputError, match="checkpoint_dir: settings of distribute are constants; pass the directory to"
    ):
        distribute(count, checkpoint_dir=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/checkpoints")


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "STEPSET_NODE_RANK": "0"}, 1),
        ({"PMI_RANK": "1", "STEPSET_NODE_RANK": "0"}, 1),
        ({"RANK": "3", "STEPSET_NODE_RANK": "1"}, 3),
        ({"RANK": "0", "STEPSET_NODE_RANK": "0"}, 0),
        ({"STEPSET_NODE_RANK": "1"}, 1),
    ],
)
def test_a_rank_is_read_from_the_variables_of_its_launcher(
    tmp_path: Path, variables: dict[str, str], rank: int
) -> None:
    writer = (
        "import json, pathlib, sys\npathlib.Path(json.loads(sys.argv[1])['outputs']['outputFile']).write_text('')\n"
    )
    given = {"outputs": {"outputFile": str(tmp_path / "output")}}
    payload = {"command": [sys.executable, "-c", writer, {"executor_input": True}], "executor_input": given}
    environ = {name: value for name, value in os.environ.items() if "RANK" not in name}
    subprocess.run([sys.executable, "-c", program(payload)], env={**environ, **variables}, check=True)
    assert (tmp_path / "output").exists() is (rank == 0), "only rank 0's outputs are the step's"


def test_one_rank_of_a_machine_installs_packages_and_the_others_wait_for_it(tmp_path: Path) -> None:
    """Uses KFP's own template, with a pip that fails if another one is running."""

    @dsl.component(base_image="python:3.12", packages_to_install=["words==1.0"])
    def installs():
        pass

    alone = '#!/bin/sh\ncase $2 in pip) mkdir {0}/busy || exit 9; sleep 0.3; rmdir {0}/busy;; *) exec {1} "$@";; esac\n'
    (tmp_path / "python3").write_text(alone.format(tmp_path, sys.executable))
    (tmp_path / "pip").write_text("#!/bin/sh\n")
    for name in ("python3", "pip"):
        (tmp_path / name).chmod(0o755)
    first = installs.component_spec.implementation.container.command[:3]
    assert "pip install" in first[2], "KFP installs in front of the component's own command"
    text = (
        "from stepset_kfp.ranks.main import install\nimport sys\n"
        "sys.exit(install(sys.argv[1:]) or print('installed'))\n"
    )
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STEPSET_RUN": str(tmp_path)}
    command = [sys.executable, "-c", text, *first, "sh", "-c", "exit 1"]
    ranks = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [rank.communicate()[0] for rank in ranks] == ["installed\n"] * 3
    assert [rank.returncode for rank in ranks] == [0] * 3


@pytest.mark.parametrize("planted", ["link", "fifo", "open to others"])
def test_a_lock_that_another_user_may_have_planted_is_refused(tmp_path: Path, planted: str) -> None:
    """/tmp is shared: a link there could make root write to any file."""
    place, victim = tmp_path / "lock", tmp_path / "victim"
    if planted == "link":
        place.symlink_to(victim)
    elif planted == "fifo":
        os.mkfifo(place)
    else:
        place.touch()
        place.chmod(0o666)
    with pytest.raises(SystemExit, match="set TMPDIR"):
        open_lock(place)
    assert not victim.exists()


def test_a_lock_is_its_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_lock(tmp_path / "lock").close()
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def an_input(directory: Path) -> dict:
    artifact = {"name": "data", "uri": str(directory / "data.txt"), "metadata": {}}
    model = {"name": "model", "uri": f"s3://bucket{directory}/model", "metadata": {"_kfp_workspace": False}}
    return {
        "inputs": {"parameterValues": {"add": 1}, "artifacts": {"data": {"artifacts": [artifact]}}},
        "outputs": {
            "outputFile": str(directory / "executor_output.json"),
            "parameters": {"total": {"outputFile": str(directory / "total")}},
            "artifacts": {"model": {"artifacts": [model]}},
        },
    }


def test_ranks_other_than_0_write_their_outputs_to_a_temporary_directory(tmp_path: Path) -> None:
    given = an_input(tmp_path / "real")
    changed = redirect_outputs(given, str(tmp_path / "scratch"))
    assert str(tmp_path / "real") not in json.dumps(changed["outputs"])
    assert changed["inputs"] == given["inputs"], "all ranks have the same inputs"
    assert given == an_input(tmp_path / "real"), "the argument is not modified"


def test_inputs_and_outputs_are_copied_through_a_shared_directory(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("data")
    given = an_input(tmp_path)
    model = given["outputs"]["artifacts"]["model"]["artifacts"][0]
    model["uri"] = str(tmp_path / "model")
    shared = SharedDirectory(tmp_path / "shared" / "pod-1", tmp_path / "shared")
    staged = shared.stage_inputs(given)
    assert local_path(staged["inputs"]["artifacts"]["data"]["artifacts"][0]).read_text() == "data"

    outputs = staged["outputs"]  # rank 0 writes them
    for path, text in (
        (local_path(outputs["artifacts"]["model"]["artifacts"][0]), "weights"),
        (Path(outputs["parameters"]["total"]["outputFile"]), "12"),
        (
            Path(outputs["outputFile"]),
            json.dumps({"artifacts": {"model": outputs["artifacts"]["model"]}, "parameterValues": {"total": 12}}),
        ),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    shared.fetch_outputs(given)
    assert (tmp_path / "model").read_text() == "weights" and (tmp_path / "total").read_text() == "12"
    output = json.loads((tmp_path / "executor_output.json").read_text())
    assert output["artifacts"]["model"]["artifacts"][0]["uri"] == str(tmp_path / "model")
    assert not (tmp_path / "shared" / "pod-1").exists(), "the directory is deleted"


@pytest.mark.parametrize(
    ("artifact", "path"),
    [
        ({"uri": "s3://bucket/a"}, "/s3/bucket/a"),
        ({"uri": "minio://mlpipeline/a"}, "/minio/mlpipeline/a"),
        ({"uri": "gs://bucket/a"}, "/gcs/bucket/a"),
        ({"uri": "oci://registry/a/b"}, "/oci/registry_a_b"),
        ({"uri": "/tmp/a"}, "/tmp/a"),
        ({"uri": "s3://bucket/a", "metadata": {"_kfp_workspace": True}}, "/kfp-workspace/.artifacts/s3/bucket/a"),
    ],
)
def test_the_local_path_of_an_artifact_is_that_of_kfp(artifact: dict, path: str) -> None:
    assert str(local_path(artifact)) == path
    if "oci" not in path:
        known = dsl.Artifact(uri=artifact["uri"], metadata=artifact.get("metadata", {}))
        assert known.path == path, "the path in KFP's own class"


@pytest.mark.local
def test_modules_that_a_component_embeds_are_importable_in_every_rank(tmp_path: Path, home: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "embedded_numbers.py").write_text("SEVEN = 7\n")

    @dsl.component(base_image="python:3.12", install_kfp_package=False, embedded_artifact_path=str(tmp_path / "lib"))
    def embeds() -> int:
        import embedded_numbers

        print("imported", embedded_numbers.SEVEN)
        return embedded_numbers.SEVEN

    many = distribute(embeds, procs_per_node=2, framework={"kind": "torch", "launcher": "none"}, log_ranks="all")

    @dsl.pipeline(name="test-distribute-embeds")
    def pipeline():
        many()

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is None
    assert ran.log.count("imported 7") == 2
