"""Variables that a shell sets itself, and those of a careless script."""

from __future__ import annotations

import re

from tests.odd_jobs import OddJob
from tests.targets.making import container, env

ODD_JOB = OddJob(
    job={"env": {"PWD": "/x", "OPTIND": "abc", "attempt": "7", "child": "8", "code": "9"}},
    expected="The command gets the job's values; OPTIND does not stop the shell of a StatefulSet.",
    source="dash 0.5.12 src/var.c and src/options.c (getoptsreset); bash 5.2 variables.c",
)


def test_the_script_sets_only_variables_with_its_prefix() -> None:
    command = container(ODD_JOB.render("statefulset"))["command"][2]
    assigned = re.findall(r"(?:^|\s)(?:export )?([A-Za-z_]+)=", command)
    assert {name for name in assigned if not name.startswith(("stepset_", "STEPSET_", "PET_"))} == {"PWD", "OPTIND"}
    assert "OPTIND" not in env(ODD_JOB.render("statefulset"))
