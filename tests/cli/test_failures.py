"""`stepset failures`: the causes and remedies of docs/failures.md, also for users without the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.advice import ADVICE
from stepset.watch.present.failure_report import failure_text
from tests.cli.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
BUILDER = ROOT / ".venvs/tools/bin/python"


@pytest.mark.parametrize("kind", FailureKind)
def test_the_command_of_a_diagnosis_prints_the_section_of_its_kind(cli: Cli, kind: FailureKind) -> None:
    status = RunStatus("r", "r", "local", Phase.FAILED, failure=Failure(kind, "it failed.", ADVICE[kind]))
    [command] = re.findall(r"^  see +stepset (.*)$", failure_text(status), re.MULTILINE)
    found = cli(*command.split())
    assert found.code == 0
    assert found.out.startswith(f"{kind.value}\n\n{ADVICE[kind]}\n")


def test_a_section_contains_each_message_with_its_cause_and_remedy(cli: Cli) -> None:
    found = cli("failures", "lost")
    assert found.out.endswith(
        "\nthe process that ran it ... ended without a verdict\n"
        "  cause   the process of stepset run was killed, the notebook's kernel was restarted, or the machine was"
        " restarted\n"
        "  remedy  stepset run --resume NAME. A run that was submitted (--detach, stepset.submit) does not end with a"
        " terminal or a kernel\n"
        "its failed pods no longer exist; the cause is unknown\n"
        "  cause   no process was following the run when it ended, and the failed pods were deleted before stepset read"
        " them. Either the training code failed, or a running pod was deleted. Kubernetes reports both causes in the"
        " same way\n"
        "  remedy  search the log storage of the cluster for the output of the ranks. For the next run, use an"
        " interface that follows the run and stores the cause\n"
        "no longer exists, and its end was not observed\n"
        "  cause   another user or a controller deleted the workload while no process of stepset was watching the"
        " workload\n"
        "  remedy  find the user or controller in the audit log of Kubernetes. If the run was over before the deletion,"
        " set a longer ttl\n"
    )


def test_without_a_kind_it_lists_all_with_their_advice(cli: Cli) -> None:
    lines = cli("failures").out.splitlines()[1:]
    assert [tuple(re.split("  +", line)) for line in lines] == [(kind.value, ADVICE[kind]) for kind in FailureKind]


def test_json_contains_the_kinds_with_their_causes_and_remedies(cli: Cli) -> None:
    items = json.loads(cli("failures", "-o", "json").out)["items"]
    assert {item["kind"]: item["advice"] for item in items} == {kind.value: ADVICE[kind] for kind in FailureKind}
    (lost,) = json.loads(cli("failures", "lost", "-o", "json").out)["items"]
    assert lost == items[[item["kind"] for item in items].index("Lost")]
    assert lost["causes"][0] == {
        "message": "the process that ran it ... ended without a verdict",
        "cause": "the process of stepset run was killed, the notebook's kernel was restarted, or the machine was"
        " restarted",
        "remedy": "stepset run --resume NAME. A run that was submitted (--detach, stepset.submit) does not end with a"
        " terminal or a kernel",
    }


def test_an_unknown_kind_is_an_error_that_lists_all(cli: Cli) -> None:
    found = cli("failures", "Oops")
    assert (found.code, found.out) == (2, "")
    assert found.errors == [f"stepset: Oops: no kind of failure; the kinds are {', '.join(FailureKind)}"]


def test_the_wheel_and_the_image_of_the_steps_contain_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"docs/failures.md": "stepset/failures.md"}
    containerfile = (ROOT / "deploy/kfp/Containerfile").read_text(encoding="utf-8")
    assert [file for file in included if f"COPY {file} /src/{Path(file).parent}/\n" not in containerfile] == []


@pytest.mark.local
@pytest.mark.skipif(not BUILDER.exists(), reason="needs the build backend (make setup-tools)")
def test_the_command_of_an_installed_wheel_prints_the_page(cli: Cli, tmp_path: Path) -> None:
    subprocess.run(
        [BUILDER, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    words = [sys.executable, "-c", "from stepset.cli import main; main()", "failures", "Lost"]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=True)
    assert done.stdout == cli("failures", "Lost").out
