"""Tolerations that compare numbers, for clusters with the feature gate TaintTolerationComparisonOperators."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import pod

_TOLERATIONS = [
    {"key": "sla", "operator": "Gt", "value": "950", "effect": "NoSchedule"},
    {"key": "age", "operator": "Lt", "value": "-1"},
]
ODD_JOB = OddJob(
    job={"scheduling": {"tolerations": [{"key": "sla", "operator": "Gt", "value": "95.5"}]}},
    expected="A value that is not an integer is refused; with an integer, the toleration is rendered unchanged.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, ValidateTolerations",
    refused=everywhere("scheduling.tolerations.0: operator Gt compares whole numbers; write value as one, in quotes"),
)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_whole_numbers_are_accepted(target: str) -> None:
    objects = ODD_JOB.render(target, scheduling={"tolerations": _TOLERATIONS})
    if target != "trainjob":  # its nodes' tolerations are in the runtime
        assert pod(objects)["spec"]["tolerations"] == _TOLERATIONS


@pytest.mark.parametrize("target", ["jobset", "volcano"])
@pytest.mark.parametrize("whole", [False, True])
def test_those_of_the_template_are_checked_too(target: str, whole: bool) -> None:
    template = {"tolerations": [{"$patch": "replace"}, {"key": "sla", "operator": "Gt", "value": "95.5"}]}
    place = "pod_template.spec" if whole else "pod_template"
    with pytest.raises(BadInputError, match=rf"^{place}.tolerations.1: operator Gt compares whole numbers"):
        ODD_JOB.render(target, scheduling={}, pod_template={"spec": template} if whole else template)
    legal = {"tolerations": _TOLERATIONS}
    assert pod(ODD_JOB.render(target, scheduling={}, pod_template=legal))["spec"]["tolerations"] == _TOLERATIONS
