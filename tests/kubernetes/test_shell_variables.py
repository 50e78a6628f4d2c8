"""Variables of the shell that a run on a cluster does not get are listed by name."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.submit.shell_variables import PREFIXES, unpassed_variables
from stepset.spec import parse_job


def note(environ: dict[str, str], **job: Any) -> str:
    return "".join(unpassed_variables(parse_job({"script": "train.py", **job}), environ, "cli"))


def test_names_are_listed_without_values() -> None:
    line = note({"WANDB_API_KEY": "hidden-value", "HF_HOME": "/secret/place", "LT_DEVICES": "2", "HOME": "/root"})
    assert line.startswith("env: the cluster does not get these variables of this shell: HF_HOME, LT_DEVICES,")
    assert "WANDB_API_KEY; --env NAME or env in the job passes one" in line
    assert "hidden-value" not in line
    assert "/secret" not in line


@pytest.mark.parametrize(
    "job",
    [
        {"env": {"HF_HOME": "/data"}},
        {"pod_template": {"containers": [{"name": "node", "env": [{"name": "HF_HOME", "value": "/data"}]}]}},
    ],
)
def test_variables_that_the_job_sets_are_not_listed(job: dict[str, Any]) -> None:
    assert note({"HF_HOME": "/home"}, **job) == ""


def test_variables_without_a_known_prefix_are_not_listed() -> None:
    assert note({"PATH": "/bin", "EDITOR": "vi", "HFX": "1"}) == ""


def test_modules_of_pythonpath_have_a_note_with_their_remedies_unless_the_job_sets_it() -> None:
    line = note({"PYTHONPATH": "/home/me/lib"})
    assert line == (
        "env: the cluster does not get the modules of this shell's PYTHONPATH; code: DIR ships a directory, or install"
        " the modules in the image"
    )
    assert note({"PYTHONPATH": "/home/me/lib"}, env={"PYTHONPATH": "/lib"}) == ""
    assert note({"PYTHONPATH": ""}) == ""


def test_the_line_is_bounded() -> None:
    line = note({f"HF_{number:03}": "x" for number in range(50)})
    assert " and 30 more;" in line


def test_every_prefix_has_a_source() -> None:
    assert all(prefix.endswith("_") and source.startswith("https://") for prefix, source in PREFIXES.items())
