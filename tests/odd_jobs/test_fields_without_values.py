"""A job file with the names of fields whose values have been removed."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from stepset.spec.yamlfile import read_mapping
from tests.odd_jobs import OddJob, everywhere

WORDS = "is null; give a value or leave it out"
ODD_JOB = OddJob(
    job=read_mapping("args:\nenv:\nstorage:\nrestart:\n", "job.yaml"),
    expected="The job is refused in the words of YAML, not with Python's None.",
    source="YAML 1.1 type null",
    refused=everywhere(f"env: {WORDS}"),
)


@pytest.mark.parametrize("field", ["args", "env", "storage", "restart", "num_nodes"])
def test_each_field_is_named(field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        OddJob(job={field: None}, expected="", source="").render("jobset")
    assert caught.value.problems == (f"{field}: {WORDS}",)


def test_a_switch_is_written_as_in_the_file() -> None:
    with pytest.raises(BadInputError, match="restart: true is not a mapping"):
        ODD_JOB.render("jobset", **read_mapping("{args: [], env: {}, storage: [], restart: true}", "job.yaml"))
