"""A deadline for each pod, in pod_template, beside that of the run."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import pod

FIELD = "activeDeadlineSeconds"
ODD_JOB = OddJob(
    job={"deadline": "2h", "pod_template": {FIELD: 600}},
    expected="Both apply; Volcano has one field for both, and a StatefulSet has neither.",
    source=(
        "kubernetes v1.36 pkg/apis/apps/validation/validation.go (ValidateStatefulSetSpec); volcano.sh/apis v1.13"
        " batch/v1alpha1"
    ),
    refused={
        "volcano": f"pod_template.{FIELD}: target volcano writes deadline into this field; leave one out",
        "statefulset": f"pod_template.{FIELD}: a StatefulSet has none; leave it out",
    },
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_the_pods_keep_their_own(target: str) -> None:
    assert pod(ODD_JOB.render(target))["spec"][FIELD] == 600


def test_a_pod_of_volcano_may_have_one_of_them() -> None:
    assert pod(ODD_JOB.render("volcano", deadline=None))["spec"][FIELD] == 600
    assert pod(ODD_JOB.render("volcano", pod_template={}))["spec"][FIELD] == 7200
