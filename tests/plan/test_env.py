"""Merging stepset's variables with the job's: precedence, reserved names, and recorded values."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.plan.env import merge_env
from stepset.plan.model import EnvEntry
from stepset.plan.values import FieldValue, SecretValue, text
from stepset.spec import parse_job
from stepset.spec.environ import EnvField, EnvSecret, EnvText

OURS = (EnvEntry("NODES", text(4), "how many"), EnvEntry("RANK", text(0), "which"))


def test_stepsets_variables_are_first_and_the_jobs_follow_in_order() -> None:
    env = {"Z": EnvText(value="1"), "A": EnvText(value="$(NODES)")}
    assert [entry.name for entry in merge_env(OURS, env, (), "torch")] == ["NODES", "RANK", "Z", "A"]


def test_an_overridden_variable_keeps_its_position_and_records_stepsets_value() -> None:
    env = {"A": EnvText(value="1"), "NODES": EnvText(value="8", override=True)}
    first, second, third = merge_env(OURS, env, (), "torch")
    assert (first.name, first.value, first.replaced) == ("NODES", text("8"), text(4))
    assert (first.origin, first.rule) == ("job", "overridden by the job")
    assert (second, third.name) == (OURS[1], "A")


def test_an_override_that_refers_to_earlier_variables_of_the_job_follows_them() -> None:
    env = {
        "A": EnvText(value="$(RANK)"),
        "NODES": EnvText(value="x-$(A)", override=True),
        "RANK": EnvText(value="$(B)", override=True),
        "B": EnvText(value="$(NODES)"),
    }
    entries = merge_env(OURS, env, (), "torch")
    assert [entry.name for entry in entries] == ["RANK", "A", "NODES", "B"], "B is no earlier variable"
    assert (entries[2].replaced, entries[2].rule) == (text(4), "overridden by the job")


def test_an_override_to_which_stepset_refers_keeps_its_position() -> None:
    rank = EnvEntry("STEPSET_NODE_RANK", text(0), "index")
    env = {"A": EnvText(value="1"), "STEPSET_NODE_RANK": EnvText(value="$(A)", override=True)}
    assert merge_env((rank, *OURS), env, (), "torch")[0].name == "STEPSET_NODE_RANK"


@pytest.mark.parametrize(
    ("var", "value"),
    [
        (EnvText(value="x"), text("x")),
        (EnvSecret(secret="hub", key="token"), SecretValue("hub", "token")),
        (EnvField(field="status.hostIP"), FieldValue("status.hostIP")),
    ],
)
def test_each_kind_of_value_is_unchanged(var: Any, value: Any) -> None:
    [entry] = merge_env((), {"A": var}, (), "plain")
    assert (entry.value, entry.origin, entry.replaced) == (value, "job", None)


def test_all_reserved_names_are_reported_together_in_order() -> None:
    env = {name: EnvText(value="1") for name in ("RANK", "LATER", "NODES", "MINE", "STEPSET_JOB")}
    with pytest.raises(BadInputError) as caught:
        merge_env(OURS, env, ("LATER",), "torch")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "env.LATER",
        "env.NODES",
        "env.RANK",
        "env.STEPSET_JOB",
    ]
    assert caught.value.problems[0] == (
        "env.LATER: reserved, because torch jobs get it from stepset; leave it out,"
        " or override it with {value: ..., override: true}"
    )


def test_a_reserved_name_that_stepset_does_not_set_can_be_overridden() -> None:
    env = {"LATER": EnvText(value="1", override=True)}
    last = merge_env(OURS, env, ("LATER",), "torch")[-1]
    assert (last.name, last.replaced) == ("LATER", None)


@pytest.mark.parametrize("framework", ["torch", "mpi", "xgboost", "plain"])
def test_the_pod_template_cannot_set_a_reserved_name(framework: str) -> None:
    name = {"torch": "PET_NNODES", "mpi": "OMPI_MCA_plm_rsh_args", "xgboost": "DMLC_TASK_ID"}.get(
        framework, "STEPSET_RUN"
    )
    template = {"containers": [{"name": "node", "env": [{"name": name, "value": "1"}, {"name": "MINE", "value": "1"}]}]}
    with pytest.raises(BadInputError) as caught:
        make_plan(parse_job({"framework": framework, "script": "a.py", "pod_template": {"spec": template}}))
    assert caught.value.problems == (
        f"pod_template.containers.node.env: {name} is reserved, because {framework} jobs get it from stepset;"
        f" leave it out, or override it with env: {{{name}: {{value: ..., override: true}}}}",
    )


def test_other_containers_of_the_pod_template_can_set_any_name() -> None:
    template = {"containers": [{"name": "sidecar", "env": [{"name": "PET_NNODES", "value": "1"}]}]}
    assert make_plan(parse_job({"script": "a.py", "pod_template": {"spec": template}})).groups
