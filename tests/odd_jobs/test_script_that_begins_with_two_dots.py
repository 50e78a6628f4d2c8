"""A script whose name begins with two dots, which cannot be the key of a ConfigMap."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from tests.odd_jobs import OddJob
from tests.targets.making import Manifest, agent_config

ODD_JOB = OddJob(
    job={"script": "..train.py"},
    expected="The pods get the file ..train.py; before, the API server refused the key of the ConfigMap.",
    source="kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go, IsConfigMapKey",
)


def keys_of(objects: list[Manifest]) -> list[str]:
    """Returns the keys of all ConfigMaps."""
    return [key for each in objects if each["kind"] == "ConfigMap" for key in each.get("data", {})]


@pytest.mark.parametrize("script", ["..train.py", "src/..train.py", "..data", "...", "..2026_11_28"])
@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_key_of_the_file_is_another_one(target: str, script: str) -> None:
    objects = ODD_JOB.render(target, script=script)
    keys = keys_of(objects)
    assert "main.py" in keys
    assert not [key for key in keys if key.startswith("..")]
    assert script.rpartition("/")[2] in str(agent_config(objects))


def test_without_the_agent_the_volume_of_a_config_map_cannot_contain_the_file() -> None:
    with pytest.raises(BadInputError, match=r"^script: a ConfigMap cannot be mounted as '\.\.train\.py', because the"):
        ODD_JOB.render("jobset", agent=False)


def test_two_dots_inside_a_name_are_a_key() -> None:
    assert "a..b.py" in keys_of(ODD_JOB.render("jobset", script="a..b.py"))
