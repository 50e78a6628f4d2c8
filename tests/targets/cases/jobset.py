"""The data of the target jobset."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.targets.cases.case import OwnField, TargetCase
from tests.targets.making import replicated_job

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
CASE = TargetCase(
    objects=("JobSet",),
    unsupported={},
    name_budgets={10: 48, 100: 47},
    refused=(),
    own_fields={
        "scheduling.topology.exclusive": OwnField(
            value="rack",
            values=st.just("rack"),
            odd=st.sampled_from(["a/b", "/b", "a/", "A/b", "example.com/a", "a" * 64, "a b", "rack", "-a", "a\n"]),
            rendered=lambda objects: replicated_job(objects)["template"]["metadata"]["annotations"][_EXCLUSIVE],
            refused=("my rack", "'my rack' is not the label of a node"),
        )
    },
    mapped={"spec.network.subdomain": "network.subdomain"},
)
