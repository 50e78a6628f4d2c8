"""A KFP step copies only what the training has left in the directories that the job declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import dsl

from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from stepset_kfp.outputs import contained_copy
from stepset_kfp.outputs.artifacts import ModelSettings, write_model
from stepset_kfp.outputs.contained_copy import OutsideError, copy_contained, open_contained
from stepset_kfp.ranks.exchange import SharedDirectory
from stepset_kfp.ranks.main import main
from tests.security.deep_trees import PROGRAM, make_deep

pytestmark = pytest.mark.kfp


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    directory = tmp_path / "declared"
    directory.mkdir()
    (tmp_path / "secret").write_text("of the step")
    return directory


def written(declared: Path, named: str, backend: str = "kubernetes") -> tuple[str, dsl.Model]:
    job = parse_job({"module": "train", "framework": "plain", "checkpoint_dir": str(declared)})
    model = dsl.Model(name="model", uri=str(declared.parent / "out" / "model"))
    status = RunStatus("run", "job", backend, Phase.SUCCEEDED, result={"model": named})
    return write_model(model, status, ModelSettings.of(job)), model


def attacks(declared: Path) -> dict[str, str]:
    (declared / "link").symlink_to(declared.parent / "secret")
    (declared / "up").symlink_to(declared.parent)
    os.mkfifo(declared / "pipe")
    return {
        "environment": "/proc/self/environ",
        "device": "/dev/zero",
        "file of the step": str(declared.parent / "secret"),
        "link": str(declared / "link"),
        "link in the path": str(declared / "up" / "secret"),
        "dots": f"{declared}/../secret",
        "pipe": str(declared / "pipe"),
        "long name": "x" * 300,
        "NUL": "a\0b",
    }


@pytest.mark.parametrize(
    "attack",
    ["environment", "device", "file of the step", "link", "link in the path", "dots", "pipe", "long name", "NUL"],
)
def test_a_result_that_leads_outside_is_recorded_and_not_copied(declared: Path, attack: str) -> None:
    named = attacks(declared)[attack]
    _, model = written(declared, named)
    note = json.loads(Path(model.path).read_text())
    assert note["model"] == named


@pytest.mark.parametrize("named", ["/proc/self/environ", "/dev/zero"])
def test_a_local_run_cannot_name_a_file_of_the_system(declared: Path, named: str) -> None:
    _, model = written(declared, named, backend="local")
    assert json.loads(Path(model.path).read_text())["model"] == named


@pytest.mark.parametrize(
    ("volume", "mount", "copied"),
    [
        ({"persistentVolumeClaim": {"claimName": "models"}}, {}, True),
        ({"persistentVolumeClaim": {"claimName": "models"}}, {"readOnly": True}, False),
        ({"secret": {"secretName": "token"}}, {}, False),
    ],
)
def test_a_volume_of_pod_template_to_which_ranks_write_may_contain_the_model(
    declared: Path, volume: dict[str, object], mount: dict[str, object], copied: bool
) -> None:
    (declared / "model.pt").write_text("weights")
    container = {"name": "node", "volumeMounts": [{"name": "models", "mountPath": str(declared), **mount}]}
    template = {"spec": {"volumes": [{"name": "models", **volume}], "containers": [container]}}
    job = parse_job({"module": "train", "framework": "plain", "pod_template": template})
    model = dsl.Model(name="model", uri=str(declared.parent / "out" / "model"))
    status = RunStatus("run", "job", "kubernetes", Phase.SUCCEEDED, result={"model": str(declared / "model.pt")})
    write_model(model, status, ModelSettings.of(job))
    assert (Path(model.path).read_text() == "weights") is copied


def test_a_directory_is_copied_without_what_leads_outside(declared: Path, tmp_path: Path) -> None:
    attacks(declared)
    (declared / "weights").write_text("weights")
    (declared / "latest").symlink_to(declared / "weights")
    message, model = written(declared, str(declared))
    assert message.startswith("model: a copy of")
    found = {path.name: path.read_text() for path in Path(model.path).rglob("*") if path.is_file()}
    assert found == {"weights": "weights", "latest": "weights"}


def test_what_is_opened_is_checked_not_what_was_listed(declared: Path, tmp_path: Path) -> None:
    (declared / "file").symlink_to("/proc/self/environ")
    with pytest.raises(OutsideError):
        copy_contained(declared / "file", tmp_path / "copy", (declared,))
    assert not (tmp_path / "copy").exists()


def test_a_checkpoint_directory_that_the_training_has_replaced_by_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the step")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "checkpoints").symlink_to("/")
    storage = [{"path": str(mount), "claim": "c"}]
    fields = {"module": "train", "framework": "plain", "storage": storage, "checkpoint_dir": str(mount / "checkpoints")}
    model = dsl.Model(name="model", uri=str(tmp_path / "out" / "model"))
    named = {"model": str(tmp_path / "secret")}
    status = RunStatus("run", "job", "kubernetes", Phase.SUCCEEDED, result=named)
    write_model(model, status, ModelSettings.of(parse_job(fields)))
    assert json.loads(Path(model.path).read_text())["model"] == named["model"]


def test_a_file_that_is_exchanged_while_it_is_copied_never_leads_outside(declared: Path, tmp_path: Path) -> None:
    """A process of the training exchanges a file, a directory, and a link to the step's own files without a pause."""
    (declared / "dir").mkdir()
    (declared / "dir" / "secret").write_text("of the training")
    program = """
import os, sys
declared, outside = sys.argv[1:]
os.chdir(declared)
os.mkdir("real"); open("real/secret", "w").write("of the training")
print("ready", flush=True)
while True:
    os.symlink(outside, "link"); os.rename("dir", "kept"); os.rename("link", "dir")
    os.unlink("dir"); os.rename("kept", "dir")
"""
    attack = subprocess.Popen([sys.executable, "-c", program, str(declared), str(tmp_path)], stdout=subprocess.PIPE)
    assert attack.stdout is not None
    attack.stdout.readline()
    copied = refused = 0
    try:
        for number in range(1500):
            target = tmp_path / "copies" / str(number)
            try:
                copy_contained(declared / "dir" / "secret", target, (declared,))
                assert target.read_text() == "of the training"
                copied += 1
            except OutsideError:
                assert not target.exists()
                refused += 1
            try:
                copy_contained(declared / "dir", target.with_suffix(".d"), (declared,))
                assert {path.name for path in target.with_suffix(".d").rglob("*")} <= {"secret"}
            except OutsideError:
                assert not target.with_suffix(".d").exists()
    finally:
        attack.kill()
        attack.communicate()
    assert copied
    assert refused


def test_a_device_or_a_pipe_is_not_opened(declared: Path, tmp_path: Path) -> None:
    """Opening a device has effects; a pipe shows whether it was opened, because its writer would no longer wait."""
    os.mkfifo(declared / "pipe")
    with pytest.raises(OutsideError, match="is not a regular file"):
        copy_contained(declared / "pipe", tmp_path / "copy", (declared,))
    with pytest.raises(OutsideError), open_contained(declared / "pipe", (declared,)):
        pass
    with pytest.raises(OutsideError), open_contained(declared, (declared,)):
        pass


def test_a_hard_link_is_a_file_of_the_mount(declared: Path, tmp_path: Path) -> None:
    (declared / "weights").write_text("weights")
    os.link(declared / "weights", declared / "latest")
    copy_contained(declared, tmp_path / "copy", (declared,))
    assert {path.name: path.read_text() for path in (tmp_path / "copy").iterdir()} == {
        "weights": "weights",
        "latest": "weights",
    }


@pytest.mark.parametrize("attack", ["sparse", "files", "depth", "names"])
def test_a_model_that_is_too_large_is_an_error_of_the_result(
    declared: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = declared / "model"
    model.mkdir()
    if attack == "sparse":
        with (model / "weights").open("wb") as file:
            file.truncate(1 << 42)
    elif attack == "files":
        monkeypatch.setattr(contained_copy, "MAX_ENTRIES", 20)
        for number in range(21):
            (model / str(number)).touch()
    else:
        folder = os.open(model, os.O_RDONLY)
        for _ in range(70 if attack == "depth" else 20):
            name = "d" if attack == "depth" else "n" * 250
            os.mkdir(name, dir_fd=folder)
            folder = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(os.open("weights", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    message, artifact = written(declared, str(model))
    assert "records only its location" in message
    assert json.loads(Path(artifact.path).read_text())["model"] == str(model)


def test_outputs_of_a_shared_directory_that_was_replaced_by_a_link_are_not_copied(tmp_path: Path) -> None:
    shared, outside = tmp_path / "shared", tmp_path / "step"
    for folder in (shared / ".stepset", outside / "outputs" / "parameters"):
        folder.mkdir(parents=True)
    (outside / "outputs" / "parameters" / "loss").write_text("of the step")
    exchange = SharedDirectory(shared / ".stepset" / "run", shared)
    (shared / ".stepset" / "run").symlink_to(outside)
    given = {
        "outputs": {"outputFile": str(tmp_path / "out"), "parameters": {"loss": {"outputFile": str(tmp_path / "l")}}}
    }
    with pytest.raises(InfrastructureError, match="is not copied"):
        exchange.fetch_outputs(given)
    assert not (tmp_path / "l").exists()
    with pytest.raises(InfrastructureError, match="leads out of the shared directory"):
        exchange.stage_inputs(given)


@pytest.mark.parametrize(
    "output",
    [
        [1],
        {"artifacts": [1]},
        {"artifacts": {"model": 1}},
        {"artifacts": {"model": {"artifacts": ["x"]}}},
        {"artifacts": {"model": {"artifacts": [{"uri": [1]}]}}},
        {"artifacts": {"model": {"artifacts": [{"custom_path": {"a": 1}}]}}},
    ],
)
def test_an_executor_output_of_any_form_is_copied_or_one_error(tmp_path: Path, output: object) -> None:
    directory = tmp_path / "shared" / "run"
    (directory / "outputs").mkdir(parents=True)
    (directory / "outputs" / "executor_output.json").write_text(json.dumps(output))
    with pytest.raises(InfrastructureError, match="rank 0's outputs cannot be read"):
        SharedDirectory(directory, tmp_path).fetch_outputs({"outputs": {"outputFile": str(tmp_path / "out")}})
    assert not (tmp_path / "out").exists()


def test_inputs_are_not_written_through_links_of_an_earlier_attempt(tmp_path: Path) -> None:
    shared, library = tmp_path / "shared", tmp_path / "library.py"
    library.write_text("of the step")
    (tmp_path / "data").write_text("input")
    place = shared / "run" / "inputs" / "data"
    place.mkdir(parents=True)
    (place / "0").symlink_to(library)
    given = {"inputs": {"artifacts": {"data": {"artifacts": [{"uri": str(tmp_path / "data")}]}}}, "outputs": {}}
    SharedDirectory(shared / "run", shared).stage_inputs(given)
    assert (library.read_text(), (place / "0").read_text()) == ("of the step", "input")
    (place / "0").unlink()
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(InfrastructureError, match="is not copied"):
        SharedDirectory(shared / "run", shared).stage_inputs(given)
    assert not (tmp_path / "0").is_file() or not (tmp_path / "0").read_text()


class Shared:
    """A shared directory in which rank 0 has written the output `model` and an executor output."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place, place / "shared"
        self.own = self.root / "run" / "outputs" / "artifacts" / "model"
        self.own.parent.mkdir(parents=True)
        self.given = {
            "outputs": {
                "outputFile": str(place / "executor_output.json"),
                "artifacts": {"model": {"artifacts": [{"name": "model", "uri": str(place / "out" / "model")}]}},
            }
        }

    def fetch(self, **artifact: object) -> dict[str, object]:
        """Returns the artifact that KFP's launcher reads."""
        output = {"artifacts": {"model": {"artifacts": [artifact]}}}
        (self.root / "run" / "outputs" / "executor_output.json").write_text(json.dumps(output))
        SharedDirectory(self.root / "run", self.root).fetch_outputs(self.given)
        written = json.loads((self.place / "executor_output.json").read_text())
        found: dict[str, object] = written["artifacts"]["model"]["artifacts"][0]
        return found


class TestPathsInTheExecutorOutput:
    """KFP's launcher uploads the file at the path of an artifact, in the step's pod and with its permissions."""

    @pytest.mark.parametrize("key", ["custom_path", "customPath", "uri"])
    @pytest.mark.parametrize("named", ["/proc/self/environ", "{place}/token", "{root}/link", "{root}/../token"])
    def test_that_lead_to_files_of_the_step_are_an_error(self, tmp_path: Path, key: str, named: str) -> None:
        shared = Shared(tmp_path)
        (tmp_path / "token").write_text("of the step")
        (shared.root / "link").symlink_to(tmp_path / "token")
        with pytest.raises(InfrastructureError, match=r"is not copied|has a part '\.\.'"):
            shared.fetch(**{key: named.format(place=tmp_path, root=shared.root)})
        assert not (tmp_path / "executor_output.json").exists()

    @pytest.mark.parametrize("key", ["custom_path", "customPath", "uri"])
    def test_within_the_shared_directory_are_copied_and_not_passed_on(self, tmp_path: Path, key: str) -> None:
        shared = Shared(tmp_path)
        (shared.root / "weights").write_text("weights")
        assert shared.fetch(**{key: str(shared.root / "weights")}) == {"uri": str(tmp_path / "out" / "model")}
        assert (tmp_path / "out" / "model").read_text() == "weights"

    @pytest.mark.parametrize("named", ["/missing", "a\0b"])
    def test_that_do_not_exist_are_dropped(self, tmp_path: Path, named: str) -> None:
        assert Shared(tmp_path).fetch(custom_path=named) == {"uri": str(tmp_path / "out" / "model")}

    def test_that_are_too_long_are_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InfrastructureError, match="cannot be copied"):
            Shared(tmp_path).fetch(custom_path="x" * 5000)

    def test_that_are_uris_with_dots_are_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InfrastructureError, match=r"has a part '\.\.'"):
            Shared(tmp_path).fetch(uri="s3://bucket/v2/digits/7d3c/../../../../../var/run/secrets/token")

    def test_of_its_own_output_and_uris_of_stores_are_as_before(self, tmp_path: Path) -> None:
        shared = Shared(tmp_path)
        shared.own.write_text("weights")
        found = shared.fetch(uri=str(shared.own), metadata={"a": 1})
        assert found == {"uri": str(tmp_path / "out" / "model"), "metadata": {"a": 1}}
        assert (tmp_path / "out" / "model").read_text() == "weights"
        (shared.root / "run" / "outputs").mkdir(parents=True)
        assert shared.fetch(uri="gs://bucket/model") == {"uri": "gs://bucket/model"}


def test_a_shared_directory_with_deep_folders_is_deleted_after_the_outputs_were_copied(tmp_path: Path) -> None:
    exchange = SharedDirectory(tmp_path / ".stepset" / "run", tmp_path)
    (exchange.directory / "outputs" / "parameters").mkdir(parents=True)
    (exchange.directory / "outputs" / "parameters" / "loss").write_text("0.5")
    make_deep(exchange.directory)
    exchange.fetch_outputs({"outputs": {"parameters": {"loss": {"outputFile": str(tmp_path / "loss")}}}})
    assert (tmp_path / "loss").read_text() == "0.5" and not exchange.directory.exists()


def test_the_target_of_a_copy_that_failed_is_deleted_also_with_deep_folders(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    make_deep(target)
    contained_copy._remove(target)
    assert not target.exists()


def test_a_folder_that_becomes_a_pipe_or_a_link_during_the_copy_is_never_followed(declared: Path) -> None:
    model, outside = declared / "model", declared.parent / "outside"
    (model / "folder").mkdir(parents=True)
    (model / "folder" / "weights").write_text("1")
    outside.mkdir()
    (outside / "secret").write_text("of the step")
    swap = f"""
import os
os.chdir({str(model)!r})
os.mkfifo("pipe")
os.symlink({str(outside)!r}, "link")
print("ready", flush=True)
while True:
    for other in ("pipe", "link"):
        os.rename("folder", "aside")
        os.rename(other, "folder")
        os.rename("folder", other)
        os.rename("aside", "folder")
"""
    with subprocess.Popen([sys.executable, "-c", swap], stdout=subprocess.PIPE) as swapping:
        assert swapping.stdout is not None and swapping.stdout.readline() == b"ready\n"
        try:
            for number in range(300):
                copy = declared.parent / f"copy-{number}"
                copy_contained(model, copy, (declared,))
                assert not [*copy.rglob("secret")]
        finally:
            swapping.kill()


def test_a_rank_deletes_deep_folders_that_the_component_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = f"{PROGRAM}\nimport json, sys\ndeep(os.path.dirname(json.loads(sys.argv[1])['outputs']['outputFile']))"
    given = {"outputs": {"outputFile": str(tmp_path / "out")}}
    payload = {"command": [sys.executable, "-c", code, {"executor_input": True}], "executor_input": given}
    assert main(payload) == 0
    assert not [*tmp_path.glob("stepset-rank-*")]
