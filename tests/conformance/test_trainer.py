"""stepset gives every pod what Kubeflow Trainer v2.3.0 gives it, with the defects fixed.

Each row of data/trainer.json is one TrainJob with its runtime and the result of the reference; `source` states its
origin. DIFFERENT contains rows for which stepset has another result on purpose, NOT_APPLICABLE rows that stepset cannot
express, each with the reason.
"""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.frameworks.kinds.torchtune import builtin_recipe, uses_lora, uses_qlora
from stepset.targets.names import COMPLETION_INDEX
from tests.conformance.pods import Planned, Row, load_rows
from tests.conformance.trainjob import job_of, model_of, name_of

ROWS, LEFT_OUT = load_rows("trainer.json")
RANK = {"fieldRef": COMPLETION_INDEX}


def _torch(host: str, nodes: int = 1, procs: str = "1") -> dict[str, Any]:
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": procs,
        "PET_NODE_RANK": RANK,
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": "29500",
    }


_ALWAYS_INJECTED = "the variables are there also when the job changes nothing of its runtime's"
_ACCELERATORS = "accelerators whose name has no 'gpu' in it count too, and torchrun cannot count them itself"
_SHARED = "several shares of GPUs may be one device, which NCCL refuses for two ranks"
_STUBS = "the table's host names are stubs; a real run has <job>-node-0-<k>, nodes first and the launcher last"
_MERGED = "processes are counted from the merged resources, which keep the runtime's GPUs (kubeflow/trainer#3974)"

# Row -> (what is expected instead, why).
DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "exec/torch: runtime gpu=4, TrainJob memory-only override (upstream bug: nproc=1 though pod keeps 4 GPUs)": (
        {"env": _torch("job-node-0-0.job", procs="auto")},
        _MERGED,
    ),
    "exec/shipped torchtune-llama3.2-1b: cpu only": (
        {"env": {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": RANK}},
        _MERGED,
    ),
    "exec/torch: resource name nvidia.com/mig-1g.5gb limits=4": (
        {"env": _torch("job-node-0-0.job", procs="4")},
        _ACCELERATORS,
    ),
    "exec/torch: resource name nvidia.com/gpu.shared limits=4": (
        {"env": _torch("job-node-0-0.job", procs="1")},
        _SHARED,
    ),
    "exec/torch: resource name habana.ai/gaudi limits=4": (
        {"env": _torch("job-node-0-0.job", procs="4")},
        _ACCELERATORS,
    ),
    "exec/torch: resource name huawei.com/Ascend910 limits=4": (
        {"env": _torch("job-node-0-0.job", procs="4")},
        _ACCELERATORS,
    ),
    "exec/torch: trainer section absent -> nothing injected": (
        {"env": _torch("job-node-0-0.job")},
        _ALWAYS_INJECTED,
    ),
    "exec/torch: envInjection without spec.trainer": (
        {"env": _torch("job-node-0-0.job", nodes=2)},
        _ALWAYS_INJECTED,
    ),
    "go/xgboost/TestXGBoostEnforceMLPolicy/no env injection when trainJob.Spec.Trainer is nil": (
        {
            "env": {
                "DMLC_TRACKER_URI": "test-job-node-0-0.test-job",
                "DMLC_TRACKER_PORT": "29500",
                "DMLC_TASK_ID": RANK,
                "DMLC_NUM_WORKER": "1",
            }
        },
        _ALWAYS_INJECTED,
    ),
    "go/mpi/TestMPI/trainJob numNodes is respected rather than mlPolicy one": (
        {"hostfile": "trainjob-node-0-0.trainjob slots=1\ntrainjob-node-0-1.trainjob slots=1\n"},
        _STUBS,
    ),
    "go/mpi/TestMPI/runLauncherAsNode is true": (
        {
            "hostfile": "".join(f"trainjob-node-0-{k}.trainjob slots=1\n" for k in range(9))
            + "trainjob-launcher-0-0.trainjob slots=1\n"
        },
        _STUBS,
    ),
    "exec/mpi: Intel not supported": (
        {
            "env": {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "I_MPI_PERHOST": "1",
            },
            "hostfile": "job-node-0-0.job:1\njob-launcher-0-0.job:1\n",
        },
        "Intel MPI is supported, as mpi-operator v0.8 does it",
    ),
}

# Rows in which the job sets a reserved name: rejected without `override: true`, accepted with it.
TAKES_RESERVED_NAMES = {
    "exec/torch: reserved env PET_NNODES": ["PET_NNODES"],
    "exec/torch: reserved env PET_NPROC_PER_NODE": ["PET_NPROC_PER_NODE"],
    "exec/torch: reserved env PET_MASTER_ADDR": ["PET_MASTER_ADDR"],
    "exec/torch: reserved env PET_MASTER_PORT": ["PET_MASTER_PORT"],
    "go/torch/TestTorchValidate/reserved environment variable present": ["PET_NPROC_PER_NODE"],
    "go/xgboost/TestXGBoostValidate/multiple errors when using multiple reserved envs": [
        "DMLC_TASK_ID",
        "DMLC_TRACKER_URI",
    ],
    "exec/shipped xgboost-distributed: reserved env": ["DMLC_TASK_ID"],
    "exec/mpi: reserved env OMPI_MCA_orte_default_hostfile": ["OMPI_MCA_orte_default_hostfile"],
    "exec/mpi: reserved env OMPI_MCA_orte_set_default_slots": ["OMPI_MCA_orte_set_default_slots"],
    # The reference reserves no JAX_* name; stepset requires the override for every name that it sets.
    "exec/shipped jax-distributed: user overrides JAX_ env (accepted, user wins)": [
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
    ],
}

# Row -> the error.
REFUSED = {
    "go/torch/TestTorchValidate/multi-node mode is only enabled for Llama-3.3-70b": "num_nodes: llama3_2/3B trains",
    "go/torch/TestTorchValidate/qlora is not supported for qwen in torchtune": "no QLoRA recipe for qwen2_5/1.5B",
    "go/torch/TestTorchValidate/muti-devices qlora is not supported for llama3.2-1b in torchtune": (
        "procs_per_node: QLoRA of llama3_2/1B needs one device"
    ),
    "go/torch/TestTorchValidate/unsupported pretrained model": "framework.model: 'llama3_1/70B' has no built-in recipe",
    # The reference's webhook, which rejects it as in the first row, is not called at this level.
    "go/torch/TestTorchEnforceMLPolicy/envInjection with torchtune command": "num_nodes: llama3_2/1B trains on one",
    "exec/shipped torchtune-llama3.2-3b: 2 gpu qlora rejected on 3B": "QLoRA of llama3_2/3B needs one device",
    "exec/shipped torchtune-qwen2.5-1.5b: 1 gpu qlora rejected on qwen": "no QLoRA recipe for qwen2_5/1.5B",
}

_NO_POLICY = "a runtime without the policy that makes it this framework's; a job file always names its framework"
_NO_CONTAINER_LIST = "envInjection names containers of a runtime's template; a job file has no such list"
_NO_TEMPLATE = "a runtime may lack the launcher; stepset makes it whenever mpirun needs one"
_NO_RUNTIME_NAME = "the model is read from the runtime's name; a job file has it in framework.model"
_NO_OVERRIDES = "the runtime's own overrides; a job file has no runtime, they are its args"
_NO_IMMUTABLE = "guards the runtime's overrides against the job's args; in a job file both are one author's"
_WEBHOOK = "a rule of the TrainJob webhook about fields a job file does not have"
_LACKS = "go/mpi/TestValidate/runtime does not have"

NOT_APPLICABLE = {
    "go/mpi/TestMPI/no action when info is nil": _NO_POLICY,
    "go/torch/TestTorchEnforceMLPolicy/no action when mlPolicySource torch is null": _NO_POLICY,
    "go/mpi/TestValidate/no action when info is nil": _NO_POLICY,
    "go/mpi/TestValidate/no action when info does not have MLPolicySource": _NO_POLICY,
    "go/jax/TestJAXEnforceMLPolicy/no action when info is nil": _NO_POLICY,
    "go/jax/TestJAXEnforceMLPolicy/no action when mlPolicySource is nil": _NO_POLICY,
    "go/jax/TestJAXEnforceMLPolicy/no action when mlPolicySource JAX is null": _NO_POLICY,
    "go/jax/TestJAXEnforceMLPolicy/no panic when JAX policy is set but trainer PodSet is absent": _NO_POLICY,
    "go/xgboost/TestXGBoostValidate/no error when runtimeInfo is nil": _NO_POLICY,
    "go/xgboost/TestXGBoostEnforceMLPolicy/no action when mlPolicySource is nil": _NO_POLICY,
    "go/xgboost/TestXGBoostEnforceMLPolicy/no action when info is nil": _NO_POLICY,
    "go/xgboost/TestXGBoostEnforceMLPolicy/no action when mlPolicySource XGBoost is null": _NO_POLICY,
    "go/plainml/TestPlainML/no action when mlPolicySource torch is not null": _NO_POLICY,
    "go/plainml/TestPlainML/no action when mlPolicySource jax is not null": _NO_POLICY,
    "go/e2e/missing trainingRuntime resource": _NO_POLICY,
    "go/torch/TestTorchEnforceMLPolicy/envInjection target container does not exist": _NO_CONTAINER_LIST,
    "go/torch/TestTorchEnforceMLPolicy/envInjection target job does not exist": _NO_CONTAINER_LIST,
    f"{_LACKS} Launcher but TrainJob has only 1 numNodes": _NO_TEMPLATE,
    f"{_LACKS} Launcher even though MPI with runLauncherAsNode has 2 numNodes": _NO_TEMPLATE,
    f"{_LACKS} Launcher and Node even though MPI with runLauncherAsNode has 2 numNodes": _NO_TEMPLATE,
    "exec/mpi: no launcher, numNodes=2, runLauncherAsNode": _NO_TEMPLATE,
    "go/torchtune/TestGetModelFromRuntimeRef/llama3.2 1B is normalized": _NO_RUNTIME_NAME,
    "go/torchtune/TestGetModelFromRuntimeRef/qwen2.5 1.5B is normalized": _NO_RUNTIME_NAME,
    "go/torchtune/TestGetModelFromRuntimeRef/fewer than three parts returns empty": _NO_RUNTIME_NAME,
    "go/torchtune/TestGetModelFromRuntimeRef/more than three parts returns empty": _NO_RUNTIME_NAME,
    "go/torchtune/TestExtractOverridesFromRuntime/trainer node container returns only immutable configs": _NO_OVERRIDES,
    "go/torchtune/TestExtractOverridesFromRuntime/non-node container is ignored": _NO_OVERRIDES,
    "go/torchtune/TestExtractOverridesFromRuntime/no jobset template": _NO_OVERRIDES,
    "go/torch/TestTorchValidate/immutable runtime config must not be set in trainer args": _NO_IMMUTABLE,
    "exec/shipped torchtune-qwen2.5-1.5b: immutable merges_file rejected": _NO_IMMUTABLE,
    "exec/patch: env on node container rejected": _WEBHOOK,
    "exec/patch: bad manager rejected": _WEBHOOK,
    "exec/shipped torch-distributed: dataset initializer on runtime without one rejected": _WEBHOOK,
}


def _is_function(row: Row) -> bool:
    return bool(row["level"] == "function")


def _too_long(row: Row) -> bool:
    return bool((row["expect"].get("jobSetAdmission") or {}).get("admissionError"))


def _is_plain(row: Row) -> bool:
    name = row["name"]
    return not (_is_function(row) or _too_long(row) or name in TAKES_RESERVED_NAMES or name in REFUSED)


def _params(*rows: Row) -> list[Any]:
    return [pytest.param(row, id=row["name"].removeprefix("go/").removeprefix("exec/")) for row in rows]


def _expected(row: Row) -> dict[str, Any]:
    return {**row["expect"], **DIFFERENT.get(row["name"], ({}, ""))[0]}


def _in_small_letters(value: Any, row: Row) -> Any:
    """Returns the expectation with the job's name in lower case, as stepset requires."""
    given, accepted = str(row["input"].get("jobName", "job")), name_of(row)
    if isinstance(value, dict):
        return {key: _in_small_letters(inner, row) for key, inner in value.items()}
    return value.replace(given, accepted) if isinstance(value, str) else value


PLAIN = [row for row in ROWS.values() if _is_plain(row)]


def test_every_row_is_used_or_listed_with_a_reason() -> None:
    assert sorted(NOT_APPLICABLE) == sorted(LEFT_OUT)
    for table in (DIFFERENT, TAKES_RESERVED_NAMES, REFUSED):
        assert set(table) <= set(ROWS)
    asserted = [
        row
        for row in PLAIN
        if {"env", "command", "args", "hostfile"} & _expected(row).keys() or row["expect"].get("validateErrors") == []
    ]
    assert len(asserted) == len(PLAIN)


@pytest.mark.parametrize("row", _params(*(r for r in PLAIN if "env" in _expected(r))))
def test_the_training_container_gets_the_references_variables(row: Row) -> None:
    planned = Planned(**job_of(row))
    group = "launcher" if row["input"]["framework"] == "mpi" else "node"
    assert _without_more_for_mpi(planned.env(group)) == _in_small_letters(_expected(row)["env"], row)


@pytest.mark.parametrize("row", _params(*(r for r in PLAIN if "command" in r["expect"])))
def test_the_training_container_runs_the_references_command(row: Row) -> None:
    planned = Planned(**job_of(row))
    group = planned.group("launcher" if row["input"]["framework"] == "mpi" else "node")
    expected = row["expect"]
    runs = [*planned.words(group.command), *planned.words(group.args)]
    if group.command_rule == "torchrun starts the ranks, because the command starts none":
        assert runs[:2] == ["torchrun", "--no-python"]  # docs/design/README.md, the differences from Trainer
        del runs[:2]
    assert runs == [*expected["command"], *expected.get("args", ())]


@pytest.mark.parametrize("row", _params(*(r for r in PLAIN if "hostfile" in _expected(r))))
def test_mpirun_finds_the_references_hostfile(row: Row) -> None:
    assert Planned(**job_of(row)).file("mpi-hostfile") == _in_small_letters(_expected(row)["hostfile"], row)


@pytest.mark.parametrize("row", _params(*(r for r in PLAIN if "pods" in r["expect"] and r["name"] not in DIFFERENT)))
def test_pods_and_resources_are_those_of_the_reference(row: Row) -> None:
    planned = Planned(**job_of(row))
    for name, pods in row["expect"]["pods"].items():
        if name in ("worker", "nope"):  # from a second replicated job of the runtime, and from a patch of one it lacks
            continue
        group = planned.group(name)
        assert group.count == (pods["count"] or 1)
        if "env" in pods and name == "node" and row["input"]["framework"] == "mpi":
            assert planned.env("node") == pods["env"]
        if "resources" in pods and name == "node":
            requested = {"requests": group.resources.requests, "limits": group.resources.limits}
            assert requested == {
                kind: {k: str(v) for k, v in pods["resources"].get(kind, {}).items()} for kind in requested
            }


@pytest.mark.parametrize("row", _params(*(r for r in PLAIN if r["expect"].get("validateErrors") == [])))
def test_accepts_what_the_reference_accepts(row: Row) -> None:
    assert Planned(**job_of(row)).plan.groups


@pytest.mark.parametrize("row", _params(*(ROWS[name] for name in REFUSED)))
def test_rejects_what_the_reference_rejects(row: Row) -> None:
    with pytest.raises(BadInputError) as caught:
        Planned(**job_of(row))
    assert REFUSED[row["name"]] in str(caught.value)


@pytest.mark.parametrize("row", _params(*(ROWS[name] for name in TAKES_RESERVED_NAMES)))
def test_a_reserved_name_is_rejected_by_name(row: Row) -> None:
    with pytest.raises(BadInputError) as caught:
        Planned(**job_of(row))
    assert [line.split(":")[0] for line in caught.value.problems] == [
        f"env.{name}" for name in TAKES_RESERVED_NAMES[row["name"]]
    ]
    assert all("override: true" in line for line in caught.value.problems)


@pytest.mark.parametrize("row", _params(*(ROWS[n] for n in TAKES_RESERVED_NAMES if "env" in ROWS[n]["expect"])))
def test_an_overridden_name_has_the_jobs_value_as_in_the_reference(row: Row) -> None:
    job = job_of(row)
    job["env"] = {name: {"value": value, "override": True} for name, value in job["env"].items()}
    planned = Planned(**job)
    group = "launcher" if row["input"]["framework"] == "mpi" else "node"
    assert _without_more_for_mpi(planned.env(group)) == row["expect"]["env"]
    if group == "launcher":
        assert planned.env("node") == row["expect"]["pods"]["node"]["env"]


@pytest.mark.parametrize("row", _params(*(r for r in ROWS.values() if _too_long(r))))
def test_a_name_that_the_jobset_webhook_rejects_is_rejected_before(row: Row) -> None:
    with pytest.raises(BadInputError, match=r"^name: '.*' has \d+ characters; .* at most \d+ fit"):
        Planned(**job_of(row))


@pytest.mark.parametrize("row", _params(*(r for r in ROWS.values() if _is_function(r))))
def test_torchtune_recipes_follow_the_reference(row: Row) -> None:
    given, expected = row["input"], row["expect"]
    args = given["args"]
    match given["function"]:
        case "isLoraConfigEnabled":
            assert uses_lora(args) == expected["result"]
        case "isUseQLoraFinetune":
            assert uses_qlora(args) == expected["result"]
        case "getRecipeAndConfig":
            one_device = given["numProcPerNode"] == 1 or given["gpu"] == 1
            found = builtin_recipe(model_of(given["runtimeRef"]), given["numNodes"], one_device, args)
            assert found == (expected["recipe"], expected["config"])
        case other:
            raise AssertionError(f"no such function: {other}")


def _without_more_for_mpi(env: dict[str, Any]) -> dict[str, Any]:
    """Removes the names of an MPI job that the reference lacks; asserts their values."""
    elders = {
        "PRTE_MCA_prte_default_hostfile": "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_set_default_slots": "OMPI_MCA_orte_set_default_slots",
        "PRTE_MCA_plm_ssh_args": "OMPI_MCA_plm_rsh_args",
    }
    if "OMPI_MCA_orte_default_hostfile" in env:
        assert env["PRTE_MCA_prte_keep_fqdn_hostnames"] == "false"  # with true, Open MPI 5 takes every node for its own
        assert set(elders) <= set(env)
        assert env["MASTER_PORT"] == "29500"
    ours: tuple[str, ...] = ("PRTE_",)
    if any(name.startswith(("OMPI_", "I_MPI_")) for name in env):
        ours += ("MASTER_", "NVIDIA_VISIBLE", "OMPI_MCA_hwloc", "I_MPI_PIN")
    return {name: value for name, value in env.items() if not name.startswith(ours)}
