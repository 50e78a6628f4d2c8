"""`stepset explain` shows the commands, variables and images that `pod_template` gives to the pods."""

from __future__ import annotations

from typing import Any

import pytest

from stepset import ExplainRow, explain
from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.plan.model import LaunchPlan, PodGroup
from stepset.plan.values import NodeRank, Text, text, texts
from stepset.spec import parse_job
from stepset.targets.explained_groups import explained_plan

_NAMES = {"name": "digits", "image": "example/train:1", "command": ["train"], "num_nodes": 2}


def _file(container: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**_NAMES, **fields, "pod_template": {"containers": [{"name": "node", **container}]}}


def _plan(container: dict[str, Any], **fields: Any) -> LaunchPlan:
    job = parse_job(_file(container, **fields))
    return explained_plan(job, make_plan(job))


def _group(container: dict[str, Any], **fields: Any) -> PodGroup:
    return _plan(container, **fields).group("node")


def _rows(given: list[dict[str, Any]] | None, **fields: Any) -> dict[str, ExplainRow]:
    rows = explain(_file({"env": given}, **fields))
    assert len({row.variable for row in rows}) == len(rows)
    return {row.variable: row for row in rows}


def _given(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": value} if isinstance(value, dict) else {"name": name, "value": value}


class TestVariables:
    def test_a_new_variable_comes_last(self) -> None:
        rows = _rows([_given("LR", "0.1")])
        assert list(rows)[-1] == "LR"
        assert (rows["LR"].value, rows["LR"].rule, rows["LR"].origin) == ("0.1", "set by pod_template", "job")
        assert {row.rule for row in rows.values()} > {"set by pod_template", "num_nodes"}

    def test_a_variable_of_the_job_is_overridden_in_its_position(self) -> None:
        rows = _rows([_given("LR", "0.2")], env={"LR": "0.1", "LAST": "1"})
        assert list(rows)[-2:] == ["LR", "LAST"]
        assert (rows["LR"].value, rows["LR"].replaced) == ("0.2", "0.1")
        assert rows["LR"].rule == "overridden by pod_template"

    @pytest.mark.parametrize(
        ("source", "shown"),
        [
            ({"fieldRef": {"fieldPath": "status.podIP"}}, "<field status.podIP>"),
            ({"secretKeyRef": {"name": "hub", "key": "token"}}, "<secret hub, key token>"),
            ({"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}, "<ConfigMap c, key k>"),
            ({"resourceFieldRef": {"resource": "limits.cpu"}}, "<resource limits.cpu>"),
            ({"fileKeyRef": {"path": "p", "volumeName": "v", "key": "k"}}, "<file p of volume v, key k>"),
            ("text", "text"),
            (None, ""),
        ],
    )
    @pytest.mark.parametrize("before", [{}, {"A": "1"}, {"A": {"secret": "s", "key": "k"}}])
    def test_its_source_replaces_any_other(self, source: Any, shown: str, before: dict[str, Any]) -> None:
        given = _given("A", source)
        if source is None:
            given["valueFrom"] = None
        assert _rows([given], env=before)["A"].value == shown

    def test_a_name_alone_changes_nothing(self) -> None:
        assert _rows([{"name": "A"}], env={"A": "1"})["A"].value == "1"

    def test_a_deleted_variable_is_not_shown(self) -> None:
        assert "A" not in _rows([{"name": "A", "$patch": "delete"}], env={"A": "1"})

    def test_a_replaced_list_has_only_its_own_variables(self) -> None:
        assert list(_rows([{"$patch": "replace"}, _given("B", "1"), _given("A", "2")], env={"A": "1"})) == ["B", "A"]

    def test_without_the_list_the_pod_has_no_variables(self) -> None:
        assert _rows(None, env={"A": "1"}) == {}

    def test_those_that_the_agent_sets_remain(self) -> None:
        rows = _rows([{"$patch": "replace"}], framework="xgboost", procs_per_node=2, agent=True)
        assert rows["DMLC_TASK_ID"].value == "<rank>"
        assert "STEPSET_JOB" not in rows

    def test_the_agent_derives_devices_from_those_that_the_pod_names(self) -> None:
        fields = {"framework": "xgboost", "procs_per_node": 2, "agent": True, "resources_per_node": {"gpus": 2}}
        before = _rows([], **fields)["CUDA_VISIBLE_DEVICES"]
        row = _rows([_given("CUDA_VISIBLE_DEVICES", "4,5")], **fields)["CUDA_VISIBLE_DEVICES"]
        assert (row.value, row.rule) == (before.value, f"{before.rule}; pod_template sets the pod's value")

    def test_all_keys_of_an_object_are_a_note(self) -> None:
        sources = [{"configMapRef": {"name": "c"}}, {"prefix": "P_", "secretRef": {"name": "s"}}]
        assert _plan({"envFrom": sources}).notes[-1] == (
            "pod_template: the keys of ConfigMap c and Secret s, with the prefix P_ are variables, too, unless a"
            " variable above has the name"
        )


class TestCommandAndImage:
    def test_a_command_replaces_stepsets_agent(self) -> None:
        group = _group({"command": ["other"]}, command=["torchrun", "train.py"], args=["--a"])
        assert (group.command, group.args, group.agent) == (texts(["other"]), texts(["--a"]), None)
        assert group.command_rule == "set by pod_template; the agent does not run"

    def test_the_same_command_also_replaces_the_agent(self) -> None:
        group = _group({"command": ["python"]}, command=["python"])
        assert group.command_rule == "set by pod_template; the agent does not run"

    def test_without_the_agent_its_variables_are_not_set(self) -> None:
        fields = {"framework": "xgboost", "procs_per_node": 2, "agent": True}
        assert "LOCAL_RANK" in [entry.name for entry in _group({}, **fields).env]
        values = {entry.name: entry.value for entry in _group({"command": ["other"]}, **fields).env}
        assert values["DMLC_TASK_ID"] == Text((NodeRank(),)), "the pod's own value, not that of a process"
        assert "LOCAL_RANK" not in values

    def test_arguments_keep_the_command(self) -> None:
        group = _group({"args": ["--b"]}, command=["torchrun", "train.py"], args=["--a"])
        assert (group.command, group.args) == (texts(["torchrun", "train.py"]), texts(["--b"]))
        assert group.agent is not None

    @pytest.mark.parametrize("nothing", [None, []])
    def test_without_a_command_the_image_has_its_own(self, nothing: Any) -> None:
        assert _group({"command": nothing, "args": nothing}).command == ()
        assert _group({"command": nothing, "args": nothing}, args=["a"]).args == ()

    def test_an_ssh_server_is_replaced_too(self) -> None:
        group = _group({"command": ["sshd"]}, framework="mpi", procs_per_node=1)
        assert (group.command, group.serves_ssh) == (texts(["sshd"]), False)

    def test_the_image(self) -> None:
        assert _group({"image": "example/other:1"}).image == "example/other:1"
        assert _group({}).image == "example/train:1"


def test_every_group_gets_it_as_its_pods_do() -> None:
    roles = [{"name": "store", "image": "example/store:1"}]
    plan = _plan({"env": [_given("A", "1")]}, roles=roles)
    assert [group.env[-1].value for group in plan.groups] == [text("1"), text("1")]


def test_without_a_pod_template_the_plan_is_unchanged() -> None:
    job = parse_job(_NAMES)
    plan = make_plan(job)
    assert explained_plan(job, plan) is plan


def test_a_pod_template_that_cannot_be_merged_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="unknown field 'imag'; did you mean 'image'"):
        _plan({"imag": "x"})
