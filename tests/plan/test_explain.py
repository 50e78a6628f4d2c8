"""`explain` shows what each pod gets and why, without the values of secrets."""

from __future__ import annotations

import stepset
from stepset.plan.explain import ExplainRow


def rows(**job: object) -> dict[str, ExplainRow]:
    return {row.variable: row for row in stepset.explain({"name": "digits", "script": "train.py", **job})}


def test_a_rule_states_the_source_of_the_value() -> None:
    found = rows(num_nodes=2, resources_per_node={"gpus": 4}, network={"port": 29501})
    assert found["PET_NNODES"].rule == "torchrun, static rendezvous: num_nodes"
    assert found["PET_NPROC_PER_NODE"].rule == "torchrun, static rendezvous: 4 x nvidia.com/gpu"
    assert found["PET_MASTER_PORT"].value == "29501"
    assert found["PET_MASTER_PORT"].rule == "torchrun, static rendezvous: network.port"


def test_the_rule_of_the_number_of_processes_states_its_source() -> None:
    given = rows(procs_per_node=3)["PET_NPROC_PER_NODE"]
    cpus = rows(resources_per_node={"cpu": "2500m", "gpus": 1}, procs_per_node="cpu")["PET_NPROC_PER_NODE"]
    one = rows(procs_per_node="cpu")["PET_NPROC_PER_NODE"]
    assert given.rule.endswith(": procs_per_node")
    assert (one.value, one.rule.split(": ")[1]) == ("1", "1 CPU, rounded up")
    assert (cpus.value, cpus.rule.split(": ")[1]) == ("3", "3 CPUs, rounded up")


def test_values_that_differ_between_pods_are_in_brackets() -> None:
    found = rows(num_nodes=2, framework={"kind": "torch", "elastic": {}})
    assert found["PET_RDZV_CONF"].value == "is_host=<1 in pod 0, else 0>"
    assert found["STEPSET_NODE_RANK"].value == "<pod index>"
    assert found["STEPSET_ATTEMPT"].value == "<attempt>"


def test_an_override_shows_what_it_replaced() -> None:
    row = rows(num_nodes=2, env={"PET_NNODES": {"value": "4", "override": True}})["PET_NNODES"]
    assert (row.value, row.replaced, row.origin, row.rule) == ("4", "2", "job", "overridden by the job")


def test_a_secret_is_shown_by_its_name_and_a_field_by_its_path() -> None:
    found = rows(env={"TOKEN": {"secret": "hub", "key": "token"}, "IP": {"field": "status.hostIP"}})
    assert found["TOKEN"].value == "<secret hub, key token>"
    assert found["IP"].value == "<field status.hostIP>"
    taken = rows(env={"PET_NNODES": {"secret": "hub", "key": "token", "override": True}})["PET_NNODES"]
    assert (taken.value, taken.replaced) == ("<secret hub, key token>", "1")


def test_every_group_is_shown_with_its_size_in_the_order_of_the_plan() -> None:
    shown = stepset.explain(
        {
            "name": "digits",
            "framework": "mpi",
            "num_nodes": 3,
            "script": "train.py",
            "roles": [{"name": "watch", "replicas": 2, "image": "x", "env": {"A": "1"}}],
        }
    )
    assert list(dict.fromkeys((row.group, row.count) for row in shown)) == [("watch", 2), ("node", 3), ("launcher", 1)]
    assert [row.variable for row in shown if row.group == "watch"] == ["A"]
