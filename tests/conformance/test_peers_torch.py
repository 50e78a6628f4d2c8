"""stepset beside its peers: variables, and what torchrun and torchtune make of them."""

from __future__ import annotations

import json

import pytest

from stepset.errors import BadInputError
from tests.conformance.peers import planned, row, rows
from tests.conformance.pods import Row

# --- roles, counting, order -------------------------------------------------------------------------------------------


@rows(
    "volcano.pytorch.master_default_port",
    "volcano.pytorch.extra_role_not_counted_in_world_size.master",
    "volcano.pytorch.extra_role_not_counted_in_world_size.worker0",
    "volcano.pytorch.custom_role_names_and_port",
)
def test_the_world_size_counts_nodes_and_never_other_roles(vector: Row) -> None:
    tasks = vector["input"]["job"]["tasks"]
    nodes = sum(t["replicas"] for t in tasks if t["name"] != "extra")
    others = [{"name": t["name"], "replicas": t["replicas"], "image": "x"} for t in tasks if t["name"] == "extra"]
    expected = dict(vector["expect"]["env"])
    job = planned(
        {"kind": "torch", "launcher": "none"},
        num_nodes=nodes,
        roles=others,
        network={"port": int(expected["MASTER_PORT"])},
    )
    env = job.env()
    assert env["WORLD_SIZE"] == expected["WORLD_SIZE"]
    assert env["MASTER_PORT"] == expected["MASTER_PORT"]
    assert env["MASTER_ADDR"] == "job-node-0-0.job"
    for role in others:
        assert job.group(role["name"]).env == ()


def test_no_variable_is_set_twice() -> None:
    vector = row("volcano.pytorch.user_env_is_appended_to_not_replaced")
    [[name, value]] = vector["input"]["pod"]["user_env"]
    assert [n for n, _ in vector["expect"]["env"]].count(name) == 2  # must not happen here
    framework = {"kind": "torch", "launcher": "none"}
    with pytest.raises(BadInputError, match=name):
        planned(framework, env={name: value})
    entries = planned(framework, env={name: {"value": value, "override": True}}).group().env
    assert [e.value.parts for e in entries if e.name == name] == [(value,)]  # type: ignore[union-attr]  # a Text


@rows("lws.env.g0_i0_default", "lws.env.g1_i0_default", "lws.env.g1_i3_lws")
def test_stepsets_variables_precede_the_jobs(vector: Row) -> None:
    size = int(dict(vector["expect"]["first_three_env"])["LWS_GROUP_SIZE"])
    entries = planned(num_nodes=size, env={"ADDRESS": "$(PET_MASTER_ADDR)", "A": "1"}).group().env
    origins = [entry.origin for entry in entries]
    assert origins == sorted(origins, key=["stepset", "job"].index)
    assert [entry.name for entry in entries][-2:] == ["ADDRESS", "A"]


def test_names_of_roles_never_become_names_of_variables() -> None:
    vector = row("torchx.k8s.role_name_with_dash_breaks_endpoint")
    job = planned(num_nodes=2, roles=[{"name": vector["input"]["role"], "image": "x"}])
    shown = json.dumps([job.env(), job.words(job.group().command)])
    assert "${" not in shown and "TRAIN" not in shown


def test_a_field_of_the_pod_may_be_a_variable() -> None:
    vector = row("torchx.k8s.field_path_env")
    [(name, path)] = vector["expect"]["valueFrom"].items()
    assert planned(env={name: {"field": path}}).env()[name] == {"fieldRef": path}


# --- elastic torch ----------------------------------------------------------------------------------------------------


def test_elastic_variables_are_those_of_training_operator_v1() -> None:
    vector = row("kfv1.elastic.full")
    policy, expected = vector["input"]["elasticPolicy"], vector["expect"]["env"]
    elastic = {
        "min_nodes": policy["min"],
        "max_nodes": policy["max"],
        "max_restarts": policy["maxRestarts"],
        "rdzv_id": policy["id"],
        "rdzv_conf": dict(policy["conf"]),
    }
    env = planned(
        {"kind": "torch", "elastic": elastic}, num_nodes=vector["input"]["workers"], network={"port": policy["port"]}
    ).env()
    # The store is always on node 0: no other host can be set.
    assert env.pop("PET_RDZV_ENDPOINT") == expected.pop("PET_RDZV_ENDPOINT").replace("localhost", "job-node-0-0.job")
    assert env.pop("PET_NPROC_PER_NODE") == "1"
    # stepset's addition: without it a node that returns fails (torch 2.15).
    assert env.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1"
    assert env == expected


@rows("kfv1.defaults.min_null_takes_max", "kfv1.defaults.max_null_takes_min")
def test_the_bounds_of_an_elastic_world_default_to_each_other(vector: Row) -> None:
    given, expected = vector["input"]["elasticPolicy"], vector["expect"]
    elastic = {f"{end}_nodes": number for end, number in given.items() if number is not None}
    world = planned({"kind": "torch", "elastic": elastic}, num_nodes=1).plan.world
    assert world.elastic == (expected["min"], expected["max"])


def test_an_elastic_world_has_no_ranks_beforehand() -> None:
    vector = row("kfv1.elastic_no_master.no_rank_no_master_env")
    policy = vector["input"]["elasticPolicy"]
    elastic = {"min_nodes": policy["min"], "max_nodes": policy["max"]}
    env = planned({"kind": "torch", "elastic": elastic}, num_nodes=vector["input"]["workers"]).env()
    assert env["PET_NNODES"] == vector["expect"]["PET_NNODES"]
    assert not set(vector["expect"]["absent"]) & set(env)


def test_torchrun_counts_gpus_itself_by_default() -> None:
    vector = row("kfv1.defaults.nproc_per_node_auto")
    assert planned(resources_per_node={"gpus": 2}).env()["PET_NPROC_PER_NODE"] == vector["expect"]["nprocPerNode"]


def test_only_node_0_hosts_the_store_even_without_dns() -> None:
    vector = row("torchrun.c10d.is_host_true_when_dns_ready")
    assert vector["expect"] == {"_matches_machine_hostname": True}  # true only while DNS is ready, hence is_host
    job = planned({"kind": "torch", "elastic": {}}, num_nodes=2)
    [conf] = [entry.value for entry in job.group().env if entry.name == "PET_RDZV_CONF"]
    assert job.words((conf,)) == ["is_host=<1 in pod 0, else 0>"]  # type: ignore[arg-type]  # a Text


# --- what torchrun makes of PET_* -------------------------------------------------------------------------------------


@rows(
    "torchrun.pet.standalone_empty_crashes",
    "torchrun.pet.standalone_true_word_crashes",
    "torchrun.pet.standalone_one",
    "torchrun.pet.node_rank_empty_is_usage_error",
    "torchrun.pet.longest_option_names_the_env",
    "torchrun.pet.not_env_aware",
    "torchx.local.pet_log_dir_respected",
)
def test_no_flag_is_set_by_a_variable_and_none_is_empty(vector: Row) -> None:
    theirs = vector["input"]["env"]
    for framework in ("torch", {"kind": "torch", "elastic": {}}, "deepspeed"):
        env = planned(framework, num_nodes=2).env()
        assert not {"PET_STANDALONE", "PET_M", "PET_NUMA_BINDING", "PET_LOGS_SPECS"} & set(env)
        assert all(value for value in env.values())
    if "" in theirs.values():
        with pytest.raises(BadInputError, match="is empty, which torchrun takes for a value"):
            planned(env=theirs)
    else:  # values of the user
        assert theirs.items() <= planned(env=theirs).env().items()


def test_torchrun_can_read_every_type() -> None:
    read = row("torchrun.pet.strings_are_typed")["expect"]
    env = planned(num_nodes=3, resources_per_node={"gpus": 2}).env()
    assert int(env["PET_NNODES"]) == 3 and int(env["PET_MASTER_PORT"]) > 0
    assert env["PET_NPROC_PER_NODE"] == read["nproc_per_node"]
    assert read["rdzv_backend"] == "static" and "PET_RDZV_BACKEND" not in env


def test_one_node_uses_the_same_rendezvous_as_many() -> None:
    vector = row("torchrun.single_node_default_is_standalone_in_2_13")
    assert vector["input"]["PET_MASTER_PORT"] is None  # which makes torchrun choose a port
    assert planned(num_nodes=1).env()["PET_MASTER_PORT"] == "29500"


def test_a_rendezvous_setting_cannot_change_the_others() -> None:
    given = row("torchrun.rdzv_conf.trailing_comma_rejected")["input"]["rdzv_conf"]
    key, value = given.split("=")
    with pytest.raises(BadInputError, match=r"framework\.elastic\.rdzv_conf: a: '1,' cannot be passed to torchrun"):
        planned({"kind": "torch", "elastic": {"rdzv_conf": {key: value}}})
    env = planned({"kind": "torch", "elastic": {"rdzv_conf": {key: 1, "b": "2"}}}).env()
    assert env["PET_RDZV_CONF"] == "a=1,b=2"


def test_the_endpoint_always_contains_its_port() -> None:
    vector = row("torchrun.rdzv_endpoint.default_port")
    env = planned({"kind": "torch", "elastic": {}}, num_nodes=2).env()
    assert env["PET_RDZV_ENDPOINT"] == vector["input"]["endpoint"] + ":29500"  # not 29400, torchrun's own default


@rows(
    "torchtune.env_only_is_single_process",
    "torchtune.flag_without_endpoint_forces_standalone",
    "torchtune.flag_plus_pet_endpoint_ok",
)
def test_tune_run_gets_the_endpoint_on_its_command_line(vector: Row) -> None:
    assert vector["expect"]["mode"] in ("single-process", "torchrun")
    job = planned({"kind": "torchtune", "model": "llama3_3/70B"}, num_nodes=2, script=None)
    command = job.words(job.group().command)
    assert command[:3] == ["tune", "run", "--rdzv_endpoint=job-node-0-0.job:29500"]
