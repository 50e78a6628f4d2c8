"""The TrainJob and its runtime contain, without repetition, what Kubeflow Trainer does not add by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.targets.making import container, of_kind, pod, rendered, workload

GPUS = {"resources_per_node": {"cpu": 8, "gpus": 4}}
TORCH = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
OPEN_MPI = {
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
}
# Framework -> (policy, what the controller sets: kubeflow/trainer v2.3.0 pkg/constants/constants.go).
INJECTED: dict[str, tuple[str, set[str]]] = {
    "torch": ("torch", TORCH),
    "jax": ("jax", {"JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"}),
    "xgboost": ("xgboost", {"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"}),
    "mpi": ("mpi", OPEN_MPI),
}


def _runtime(**job: Any) -> dict[str, Any]:
    return of_kind(rendered("trainjob", **job), "TrainingRuntime")["spec"]


def _trainer(**job: Any) -> dict[str, Any]:
    trainer: dict[str, Any] = workload(rendered("trainjob", **job))["spec"]["trainer"]
    return trainer


def _names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}


def _group(framework: str) -> str:
    return "launcher" if framework == "mpi" else "node"


@pytest.mark.parametrize("framework", INJECTED)
def test_only_variables_that_the_controller_does_not_set_are_written(framework: str) -> None:
    job = {"framework": framework, "num_nodes": 2, "procs_per_node": 1, "env": {"LR": "0.1"}}
    written = _names(_trainer(**job)["env"])
    _, added = INJECTED[framework]
    assert not written & added
    assert written | added == _names(container(rendered("jobset", **job), _group(framework))["env"])
    assert list(_runtime(**job)["mlPolicy"]) == [INJECTED[framework][0]]


@pytest.mark.parametrize("framework", INJECTED)
def test_the_runtime_does_not_repeat_the_trainjob(framework: str) -> None:
    found = container(rendered("trainjob", framework=framework, procs_per_node=1), _group(framework))
    assert {"image", "command", "args", "env"}.isdisjoint(found)


def test_numbers_of_nodes_and_processes_are_the_trainjobs() -> None:
    job = {"num_nodes": 4, "procs_per_node": 2}
    assert (_trainer(**job)["numNodes"], _trainer(**job)["numProcPerNode"]) == (4, 2)
    spec = _runtime(**job)["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert {"completions", "parallelism"}.isdisjoint(spec)


def test_the_controller_gets_the_number_if_it_would_count_memory() -> None:
    assert _trainer(resources_per_node={"cpu": 8, "aliyun.com/gpu-mem": 8})["numProcPerNode"] == 1
    assert "numProcPerNode" not in _trainer(resources_per_node={"cpu": 8, **VGPU}), "torchrun counts them"


def test_torchrun_counts_gpus_by_itself() -> None:
    assert "numProcPerNode" not in _trainer(num_nodes=2, **GPUS)
    assert _runtime(num_nodes=2, **GPUS)["mlPolicy"] == {"torch": {}}


def test_the_rendezvous_port_is_opened_by_the_controller() -> None:
    assert "ports" not in container(rendered("trainjob"))


def test_every_port_has_a_name_because_the_controller_merges_ports_without() -> None:
    ports = [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}, {"name": "mine", "containerPort": 9}]
    template = {"containers": [{"name": "node", "ports": ports}, {"name": "x", "image": "x", "ports": ports[:1]}]}
    objects = rendered("trainjob", framework="mlx", num_nodes=2, procs_per_node=2, pod_template=template)
    found = {port["containerPort"]: port["name"] for port in container(objects)["ports"]}
    assert found == {32323: "tcp-32323", 32324: "tcp-32324", 8080: "tcp-8080", 53: "udp-53", 9: "mine"}
    assert container(objects, name="x")["ports"] == [{"containerPort": 8080, "name": "tcp-8080"}]


def test_a_launchers_variables_are_in_the_runtime_if_the_controller_copies_the_trainjobs_to_all_nodes() -> None:
    def job(as_node: bool) -> dict[str, Any]:
        framework = {"kind": "mpi", "run_launcher_as_node": as_node}
        return {"framework": framework, "num_nodes": 2, "procs_per_node": 1}

    def variables(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {row["name"]: row for row in rows}

    of_launcher = variables(container(rendered("trainjob", **job(True)), "launcher")["env"])
    of_trainjob = variables(_trainer(**job(False))["env"])
    assert "env" not in _trainer(**job(True))
    assert of_launcher.pop("MASTER_ADDR")["value"] == "digits-launcher-0-0.digits"  # the launcher is node 0
    assert of_trainjob.pop("MASTER_ADDR")["value"] == "digits-node-0-0.digits"
    assert of_trainjob.pop("NVIDIA_VISIBLE_DEVICES")["value"] == "void"
    assert of_launcher == of_trainjob


def test_mpis_hostfile_keys_and_mounts_are_the_controllers() -> None:
    objects = rendered("trainjob", framework="mpi", num_nodes=2, procs_per_node=2)
    assert not {each["metadata"]["name"] for each in objects} & {"digits-mpi-hostfile", "digits-mpi-ssh-auth"}
    for group in ("node", "launcher"):
        assert not {v["name"] for v in pod(objects, group)["spec"]["volumes"]} & {"mpi-hostfile", "mpi-ssh-auth"}
    assert of_kind(objects, "TrainingRuntime")["spec"]["mlPolicy"]["mpi"] == {
        "numProcPerNode": 2,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runLauncherAsNode": False,
    }


def test_open_mpi_5s_names_are_written_as_the_controller_lacks_them() -> None:
    names = _names(_trainer(framework="mpi", num_nodes=2, procs_per_node=2)["env"])
    assert {"PRTE_MCA_prte_default_hostfile", "PRTE_MCA_prte_set_default_slots"} <= names


VGPU = {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 4096}
ELASTIC = {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"network": {"port": 29501}}, id="another port"),
        pytest.param({"network": {"subdomain": "ring"}}, id="another service"),
        pytest.param({"framework": ELASTIC}, id="elastic"),
        pytest.param({"framework": {"kind": "torch", "launcher": "none"}}, id="no launcher"),
        pytest.param({"framework": "mlx"}, id="mlx ring"),
        pytest.param({"framework": {"kind": "mpi", "implementation": "intel"}}, id="intel mpi"),
        pytest.param(
            {"framework": {"kind": "mpi", "run_launcher_as_node": True}, "num_nodes": 1}, id="a launcher alone"
        ),
        pytest.param({"env": {"PET_NNODES": {"value": "9", "override": True}}}, id="a name taken knowingly"),
        pytest.param({"env": {"A": "$(PET_NNODES)"}}, id="a variable that uses a later one"),
        pytest.param(
            {"framework": "xgboost", "resources_per_node": {"habana.ai/gaudi": 4}}, id="devices it cannot count"
        ),
        pytest.param({"framework": "xgboost", "resources_per_node": VGPU}, id="memory that it may count"),
        pytest.param({"framework": "xgboost", "resources_per_node": {"aliyun.com/gpu-mem": 8}}, id="memory it counts"),
    ],
)
def test_the_controller_is_configured_to_add_nothing_if_it_would_differ(job: dict[str, Any]) -> None:
    job = {"num_nodes": 2, **({} if "resources_per_node" in job else {"procs_per_node": 1}), **job}
    objects, jobset = rendered("trainjob", **job), rendered("jobset", **job)
    spec = of_kind(objects, "TrainingRuntime")["spec"]
    assert "mlPolicy" not in spec
    group = spec["template"]["spec"]["successPolicy"]["targetReplicatedJobs"][0]
    assert workload(objects)["spec"]["trainer"]["env"] == container(jobset, group)["env"]
    count = of_kind(jobset, "JobSet")["spec"]["replicatedJobs"][-1]["template"]["spec"]["completions"]
    assert workload(objects)["spec"]["trainer"]["numNodes"] == count


def test_the_jobset_behind_it_is_the_jobset_targets() -> None:
    job = {"num_nodes": 2, "restart": {"max_restarts": 2}, "deadline": "1h"}
    theirs = of_kind(rendered("jobset", **job), "JobSet")["spec"]
    ours = _runtime(**job)["template"]["spec"]
    assert {k: v for k, v in ours.items() if k != "replicatedJobs"} == {
        k: v for k, v in theirs.items() if k != "replicatedJobs"
    }


def test_the_runtime_is_the_trainjobs_own() -> None:
    assert workload(rendered("trainjob"))["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "digits",
    }


def test_lists_that_are_too_long_for_a_trainjob_are_in_the_runtime() -> None:
    """The API server refuses more than 128 items in the lists of `trainer` (Kubeflow Trainer v2.3.0)."""
    variables = {f"V{n}": "1" for n in range(140)}
    objects = rendered("trainjob", command=["a"], args=["b"] * 200, env=variables, agent=False)
    trainer = workload(objects)["spec"]["trainer"]
    there = container(objects)
    assert trainer["command"] == ["a"]
    assert trainer.keys().isdisjoint({"args", "env"})
    assert there["args"] == ["b"] * 200
    assert variables.keys() <= {row["name"] for row in there["env"]}
