"""stepset beside its peers: names and sizes that are rejected before anything is rendered."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset.spec.names import jobset_name_budget
from tests.conformance.peers import planned, row, rows
from tests.conformance.pods import Row

# --- names and sizes --------------------------------------------------------------------------------------------------


def test_a_name_is_as_long_as_its_longest_pods_name_allows() -> None:
    vector = row("jobset.name_budget")
    given, checked = vector["input"], vector["expect"]["checked"]
    budget = jobset_name_budget([(given["rjob"], given["completions"])])
    assert budget == 63 - (len(checked) - len(given["jobset"]))
    assert parse_job({"name": "a" * budget, "script": "t.py", "num_nodes": given["completions"]})
    with pytest.raises(BadInputError, match=f"at most {budget} fit"):
        parse_job({"name": "a" * (budget + 1), "script": "t.py", "num_nodes": given["completions"]})


def test_the_subdomain_is_the_jobs_name_by_default() -> None:
    vector = row("jobset.network_defaults")
    assert vector["input"]["network"] is None and vector["expect"]["subdomain"] == "<jobset name>"
    assert planned(name="digits").env()["PET_MASTER_ADDR"] == "digits-node-0-0.digits"
    plan = planned(name="digits", network={"subdomain": "ring"})
    assert plan.env()["PET_MASTER_ADDR"] == "digits-node-0-0.ring"


@rows(
    "mpiop.validation.hostname_over_63",
    "mpiop.validation.name_must_start_with_letter",
    "torchx.k8s.pod_name_over_63_rejected_at_dryrun",
)
def test_a_name_that_no_pod_can_have_is_rejected_before_rendering(vector: Row) -> None:
    given = vector["input"]
    role = [{"name": given["role"], "image": "x"}] if "role" in given else []
    job = {"name": given.get("name") or given["job"], "num_nodes": given.get("workers") or 1, "roles": role}
    with pytest.raises(BadInputError, match=r"^name: "):
        parse_job({"script": "t.py", **job})


@rows(
    "torchx.parse_nnodes.2", "torchx.parse_nnodes.bad.1x", "torchx.parse_nnodes.bad.x2", "torchx.parse_nnodes.bad._2x1"
)
def test_the_number_of_nodes_is_a_number(vector: Row) -> None:
    given = vector["input"]["j"]
    if "error" not in vector["expect"]:
        assert parse_job({"script": "t.py", "num_nodes": given}).num_nodes == int(given)
        return
    with pytest.raises(BadInputError, match=r"num_nodes: '.*' is not a whole number"):
        parse_job({"script": "t.py", "num_nodes": given})
