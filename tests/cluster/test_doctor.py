"""`stepset doctor` on a cluster: an account with the minimal Role has no problem; another one gets the commands."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from stepset.cli.output.schema import output_schema
from tests.cluster.remedies import Requester, paste
from tests.cluster.runs import ACCOUNT, Runs, terminating

pytestmark = pytest.mark.cluster

VALIDATOR = Draft202012Validator(output_schema())
MACHINE = ("versions", "runs", "shared memory", "GPUs", "ports")


def findings(runs: Runs) -> list[dict[str, str]]:
    """What `stepset doctor` finds on the cluster; its text and its JSON agree, and so does its exit code."""
    words = ("doctor", "--target", runs.target)
    done = runs.cli(*words, "-o", "json")
    document = json.loads(done.stdout)
    assert list(VALIDATOR.iter_errors(document)) == []
    items: list[dict[str, str]] = document["items"]
    assert done.returncode == any(each["state"] == "problem" for each in items), done.stdout
    lines = runs.cli(*words).stdout.splitlines()
    found = [each for each in items if each["check"] not in MACHINE]
    assert {f"{each['state']}: {each['check']}: {each['text']}" for each in found} <= {*lines}
    return found


@pytest.mark.parametrize("runs", ["jobset", "statefulset"], indirect=True)
def test_the_minimal_role_has_no_problem_and_its_absence_has_a_command(runs: Runs) -> None:
    before = {name: len(runs.get(name)["items"]) for name in ("pods", "configmaps", "jobsets")}
    found = {each["check"]: each for each in findings(runs)}
    assert {each["state"] for each in found.values()} <= {"ok", "note"}, found
    assert found["permissions"]["text"].endswith(f" for the target in namespace {runs.namespace}")
    assert "Kubernetes v1." in found["cluster"]["text"]
    assert found["cluster GPUs"]["text"] == "you may not list nodes, so the GPUs are unknown"

    account = Requester(runs.cluster, runs.namespace, ("--account", f"{runs.namespace}/{ACCOUNT}"), runs.kubeconfig)
    account.take_rights()
    missing = [each for each in findings(runs) if each["state"] == "problem"]
    assert missing and {each["check"] for each in missing} == {"permissions"}
    fixes = {each["fix"] for each in missing}
    assert fixes == {
        f"stepset rbac --namespace {runs.namespace} --target {runs.target} --account {runs.namespace}/{ACCOUNT}"
        " | kubectl apply -f -"
    }
    paste(runs.cluster, fixes.pop())
    assert not [each for each in findings(runs) if each["state"] == "problem"]
    assert before == {name: len(runs.get(name)["items"]) for name in before}


def test_a_namespace_that_is_being_deleted_is_one_problem(runs: Runs) -> None:
    """An account that may not read the namespace creates an object in a dry run."""
    with terminating(runs):
        found = [each for each in findings(runs) if each["state"] == "problem"]
    assert [(each["check"], each["text"]) for each in found] == [("namespace", f"'{runs.namespace}' is being deleted")]
