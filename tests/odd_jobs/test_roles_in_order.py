"""Two downloads at the same time, an index after both, a check after the index, and a board that starts at once."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.run_status import Phase
from tests.cluster.many import BRIEF
from tests.cluster.runs import Runs
from tests.odd_jobs import OddJob
from tests.targets.making import replicated_job, request

PLAIN: dict[str, Any] = {"command": ["true"]}
SINGLE = "roles.models: target {} cannot start and stop pods of several kinds together"
ODD_JOB = OddJob(
    job={
        "roles": [
            {**PLAIN, "name": "models", "before": True},
            {**PLAIN, "name": "data", "before": True},
            {**PLAIN, "name": "index", "before": True, "after": ["models", "data"]},
            {**PLAIN, "name": "verify", "before": True, "after": ["index"]},
            {**PLAIN, "name": "board"},
        ]
    },
    expected="Roles without `after` start at the same time; the nodes wait for the last of each sequence only.",
    source="docs/targets.md, Roles; jobset v0.12.0 api/jobset/v1alpha2/jobset_types.go (DependsOn, at most 5)",
    refused={
        "statefulset": SINGLE.format("statefulset"),
        "job": SINGLE.format("job"),
        "volcano": "roles.verify.before: Volcano starts the nodes once the role runs",
    },
)


def test_each_waits_for_what_it_names_and_the_nodes_for_the_last() -> None:
    objects = ODD_JOB.render("jobset")
    groups = ("models", "data", "index", "verify", "board", "node")
    waits = {name: replicated_job(objects, name).get("dependsOn", []) for name in groups}
    assert {name: [row["name"] for row in rows] for name, rows in waits.items()} == {
        "models": [],
        "data": [],
        "index": ["models", "data"],
        "verify": ["index"],
        "board": [],
        "node": ["verify"],
    }
    assert {row["status"] for rows in waits.values() for row in rows} == {"Complete"}


def test_a_sequence_may_have_more_roles_than_a_jobset_has_dependencies() -> None:
    roles = [{**PLAIN, "name": f"r{k}", "before": True, "after": [f"r{k - 1}"] if k else []} for k in range(9)]
    assert ODD_JOB.render("jobset", roles=roles)


@pytest.mark.parametrize(
    ("after", "first"),
    [(["later"], {}), (["itself"], {}), (["board"], {"before": False}), (["nothing"], {})],
    ids=["later", "itself", "not before", "unknown"],
)
def test_only_an_earlier_role_that_completes_can_be_waited_for(after: list[str], first: dict[str, Any]) -> None:
    board = {**PLAIN, "name": "board", "before": True, **first}
    rest = [{**PLAIN, "name": "itself", "before": True, "after": after}, {**PLAIN, "name": "later", "before": True}]
    with pytest.raises(BadInputError) as caught:
        request(roles=[board, *rest])
    assert f"roles.itself.after: {after[0]!r} is not an earlier role with before: true" in str(caught.value)


@pytest.mark.cluster
@pytest.mark.parametrize("runs", ["jobset", "trainjob"], indirect=True)
def test_on_the_real_controllers_a_role_starts_when_the_roles_before_it_have_ended(runs: Runs) -> None:
    def role(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "before": True, "command": [runs.cluster.python, "-c", "print()"], **more}

    status, _ = runs.run("print('trained')", roles=[role("a"), role("b", after=["a"])], pod_template=BRIEF)
    assert status.phase is Phase.SUCCEEDED
    ran = {group: _times(runs.pods(group)[0]) for group in ("a", "b", "node")}
    assert ran["a"][1] <= ran["b"][0]
    assert ran["b"][1] <= ran["node"][0]


def _times(pod: dict[str, Any]) -> tuple[str, str]:
    """When the container started and when it ended."""
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended["startedAt"], ended["finishedAt"]
