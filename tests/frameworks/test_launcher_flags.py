"""Options of a launcher in the command either agree with the job, or are errors with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from tests.frameworks.planned import Plan

MPI = {"kind": "mpi"}
WITHOUT = {"kind": "torch", "launcher": "none"}
ELASTIC = {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4, "max_restarts": 3, "rdzv_id": "mine"}}


def problems(command: str | list[str], framework: Any = "torch", **job: Any) -> list[str]:
    """Returns the errors of a job with 4 nodes of 8 processes, unless `job` states otherwise."""
    words = command.split() if isinstance(command, str) else command
    try:
        Plan(framework, **{"num_nodes": 4, "procs_per_node": 8, "command": words, **job})
    except BadInputError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            "--nnodes=1",
            "--nnodes=1 of torchrun contradicts num_nodes: 4; remove it, because stepset sets it, or set num_nodes: 1",
        ),
        ("--nnodes 2:4", "contradicts num_nodes: 4; remove it, because stepset sets it, or set framework: {"),
        ("--nnode 1", "--nnode 1 of torchrun contradicts num_nodes: 4"),
        ("--standalone", "--standalone of torchrun would train in each of the 4 nodes alone; remove it, or set"),
        ("--nproc-per-node=4", "contradicts procs_per_node: 8; remove it, because stepset sets it, or set procs_"),
        ("--nproc_per_node 4", "contradicts procs_per_node: 8"),
        ("--node-rank=0", "is equal in all 4 nodes; remove it, because stepset sets it, or write $(STEPSET_NODE_RANK)"),
        ("--master-addr=node0", "is not node 0 of the run, whose name stepset assigns; remove it"),
        ("--master-port 1234", "contradicts network.port: 29500; remove it, because stepset sets it, or set network"),
        ("--rdzv-backend=c10d --rdzv-endpoint=localhost:0", "--rdzv-endpoint=localhost:0 of torchrun is not node 0"),
        ("--rdzv-endpoint=[::1]:29400", "is not node 0 of the run"),
        ("--rdzv-backend c10d", "--rdzv-backend c10d of torchrun needs --rdzv-endpoint"),
        ("--max-restarts=3", "would restart the ranks of one node only, which the other nodes do not join; remove"),
        (
            "--rdzv-backend=c10d --rdzv-endpoint=$(PET_MASTER_ADDR):29500 --max-restarts=3",
            'set env: {TORCH_DISABLE_SHARE_RDZV_TCP_STORE: "1"}, or remove the options of the rendezvous and set'
            " framework: {kind: torch, elastic: {min_nodes: 4, max_nodes: 4, max_restarts: 3}}",
        ),
        ("--local-addr 127.0.0.1", "is equal in all 4 nodes; remove it"),
        ("-t 3 -r3 --no-python --nnodes=1", "--nnodes=1 of torchrun contradicts"),
    ],
)  # fmt: skip
def test_a_flag_of_torchrun_that_contradicts_the_job_is_an_error(flags: str, problem: str) -> None:
    [found] = problems(f"torchrun {flags} train.py")
    assert found.startswith("command: ") and problem in found
    for launcher in ("python3 -m torch.distributed.run", "env A=1 torchrun"):
        assert len(problems(f"{launcher} {flags} train.py")) == 1
    assert problems(f"torchrun {flags} train.py", "plain", procs_per_node="auto") == []


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--nnodes=4 --nproc-per-node 8 --master-port=29500 --max-restarts 0 --rdzv-backend=static",
        "--nnodes=4:4",
        "--nproc-per-node=gpu",
        "--node-rank=$(STEPSET_NODE_RANK) --master-addr $(PET_MASTER_ADDR) --nnodes=$(PET_NNODES)",
        "--rdzv-backend=c10d --rdzv-endpoint=$(PET_MASTER_ADDR):29500 --rdzv-id=7",
        "--rdzv-backend=etcd-v2 --rdzv-endpoint=etcd.ml.svc:2379 --max-restarts=3",
        "--tee 3 --log-dir /tmp/x --role trainer",
    ],
)
def test_a_flag_that_agrees_or_refers_to_a_variable_is_accepted(flags: str) -> None:
    assert problems(f"torchrun {flags} train.py --nnodes=1 --standalone") == []


def test_on_one_node_torchrun_may_form_a_world_of_its_own() -> None:
    assert problems("torchrun --standalone --nnodes=1 --nproc-per-node=8 --max-restarts=3 train.py", num_nodes=1) == []
    assert problems("torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 train.py", num_nodes=1) == []
    [found] = problems("torchrun --master-addr=node0 train.py", num_nodes=1)
    assert "--master-addr=node0 of torchrun is not the only node of the job" in found


def test_the_number_of_processes_is_that_of_the_resources() -> None:
    assert problems("torchrun --nproc-per-node=8 t.py", procs_per_node="auto", resources_per_node={"gpus": 8}) == []
    [found] = problems("torchrun --nproc-per-node=8 train.py", procs_per_node="auto")
    assert found.endswith(
        "procs_per_node: auto, which is 1 without an accelerator in resources_per_node; set procs_per_node: 8, or"
        " request accelerators in resources_per_node"
    )
    [found] = problems("torchrun --nproc-per-node=4 t.py", procs_per_node="auto", resources_per_node={"gpus": 8})
    assert "auto, which is 8 with these resources; remove it, because stepset sets it, or set procs_per" in found
    [found] = problems("torchrun --nproc-per-node=1 t.py", procs_per_node="auto", resources_per_node={"cpu": 4})
    assert found.endswith("auto, which is 4 without an accelerator in resources_per_node; set procs_per_node: 1")
    [found] = problems("mpirun -n 8 ./a.out", "xgboost", num_nodes=1, procs_per_node="auto")
    assert found.endswith("; remove mpirun, and set procs_per_node: 8")
    [found] = problems("mpirun -n 4 ./a.out", MPI, num_nodes=1, procs_per_node="auto")
    assert found.endswith("; set procs_per_node: 4, or set framework.launch: command")


def test_torchrun_that_counts_the_gpus_starts_one_rank_for_each() -> None:
    gpus = {"gpus": 8}
    assert problems("torchrun --nproc-per-node=gpu train.py", resources_per_node=gpus) == []
    for count in ("gpu", "auto"):
        [found] = problems(f"torchrun --nproc-per-node={count} t.py", procs_per_node=4, resources_per_node=gpus)
        assert (
            f"contradicts procs_per_node: 4; remove it, because stepset sets it, or set procs_per_node: {count}"
            in found
        )


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "torchrun --nproc-per-node=4 t.py",
            "contradicts the one process of each node of a jax job; set framework: torch",
        ),
        (
            "mpirun -np 4 python3 t.py",
            "contradicts the 1 rank of the job (num_nodes: 1, procs_per_node: 1); set framework: mpi",
        ),
    ],
)
def test_a_jax_job_has_one_process_in_each_node_whatever_procs_per_node_is(command: str, problem: str) -> None:
    [found] = problems(command, "jax", num_nodes=1)
    assert problem in found


def test_a_number_that_is_none_is_left_to_the_launcher() -> None:
    assert problems(f"torchrun --nnodes={'9' * 5000} --nproc-per-node=\u0664 --master-port=x train.py") == []


def test_a_command_may_set_the_variable_that_an_option_needs() -> None:
    torchrun = "torchrun --rdzv-backend=c10d --rdzv-endpoint=$(PET_MASTER_ADDR):29500 --max-restarts=3 train.py"
    variable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    assert len(problems(["bash", "-c", torchrun])) == 1
    assert problems(["bash", "-c", f"export {variable}\n{torchrun}"]) == []
    assert problems(f"env {variable} {torchrun}") == []


def test_a_reference_to_a_variable_that_stepset_does_not_set_is_an_error() -> None:
    command = "torchrun --rdzv-endpoint=$(PET_MASTER_ADDR):29500 --nnodes=$(PET_NNODES) train.py"
    assert problems(command) == []
    [found] = problems(command, ELASTIC)
    assert "--rdzv-endpoint=$(PET_MASTER_ADDR):29500 of torchrun refers to PET_MASTER_ADDR, which the pods of" in found
    by_config_map = {"containers": [{"name": "node", "envFrom": [{"configMapRef": {"name": "addresses"}}]}]}
    assert problems(command, ELASTIC, pod_template=by_config_map) == []
    assert problems("torchrun --node-rank=$(JOB_COMPLETION_INDEX) --nnodes=$$(PET_X) train.py") == []


def test_a_reference_to_a_variable_of_a_pytorchjob_is_an_error_unless_the_pods_have_it() -> None:
    command = "torchrun --nnodes=4 --node-rank=$(RANK) train.py"
    [found] = problems(command)
    assert "--node-rank=$(RANK) of torchrun refers to RANK, which the pods of this job do not have; remove it" in found
    address = "torchrun --nnodes=4 --rdzv-endpoint=$(MASTER_ADDR):29500 train.py"
    assert len(problems(address)) == 1
    assert problems(address, {"kind": "torch", "env_layer": "both"}) == []
    assert problems(command, env={"RANK": "$(PET_NODE_RANK)"}) == []


def test_flags_among_the_args_are_named_so() -> None:
    [found] = problems("torchrun", args=["--nnodes=1", "train.py"])
    assert found.startswith("args: --nnodes=1 of torchrun contradicts num_nodes: 4")


def test_the_command_of_pod_template_is_the_one_that_runs() -> None:
    def template(**node: Any) -> dict[str, Any]:
        return {"containers": [{"name": "node", **node}]}

    standalone = ["torchrun", "--standalone", "train.py"]
    [found] = problems("python3 train.py", pod_template=template(command=standalone))
    assert found.startswith("pod_template.containers.node.command: --standalone of torchrun would train in each")
    [found] = problems("torchrun", args=["train.py"], pod_template={"spec": template(args=["--nnodes=1", "train.py"])})
    assert found.startswith("pod_template.spec.containers.node.args: --nnodes=1 of torchrun contradicts num_nodes: 4")
    assert problems(standalone, pod_template=template(command=["sleep", "1"])) == []
    assert problems("python3 t.py", WITHOUT, num_nodes=1, pod_template=template(command=standalone)) == []


def test_one_command_in_the_text_of_a_shell_is_checked_and_other_text_is_not() -> None:
    assert len(problems(["bash", "-c", "exec torchrun --nnodes=1 train.py"])) == 1
    assert problems(["bash", "-c", "torchrun --nnodes=$NODES train.py"]) == []
    assert problems(["bash", "-c", "torchrun --standalone check.py && torchrun train.py"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed $DS_ARGS train.py",
        "torchrun --max-restarts=3 $RDZV_ARGS train.py",
        "torchrun --rdzv-backend=c10d ${RDZV_ARGS} train.py",
        "torchrun --rdzv-endpoint=etcd:2379 $RDZV_ARGS train.py",
        "tune run $ARGS recipe --config c",
        'fabric run t.py "$@"',
    ],
)
def test_an_option_that_may_be_in_a_variable_is_not_missed(text: str) -> None:
    assert problems(["bash", "-c", text]) == []


def test_options_before_a_variable_are_compared() -> None:
    assert len(problems(["bash", "-c", "torchrun --nnodes=1 $RDZV_ARGS train.py"])) == 1


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--nnodes=4", "contradicts framework.elastic, 2:4 nodes"),
        ("--rdzv-backend=static", "contradicts framework.elastic, which uses c10d"),
        ("--rdzv-id=other", "replaces the rendezvous ID of the run"),
        ("--rdzv-conf=timeout=9", "replaces is_host, with which node 0 hosts the store"),
        ("--max-restarts=5", "contradicts framework.elastic.max_restarts: 3"),
        ("--standalone", "would train in each of the 4 nodes alone"),
    ],
)
def test_an_elastic_world_is_compared_with_its_options(flags: str, problem: str) -> None:
    [found] = problems(f"torchrun {flags} train.py", ELASTIC)
    assert problem in found
    assert problems("torchrun --nnodes=2:4 --rdzv-id=mine --max-restarts 3 train.py", ELASTIC) == []


def test_variables_that_torchrun_reads_as_flags_are_checked() -> None:
    with pytest.raises(BadInputError) as caught:
        Plan("torch", num_nodes=4, script="train.py", env={"PET_STANDALONE": "1"})
    assert (
        str(caught.value)
        == "env.PET_STANDALONE: would train in each of the 4 nodes alone; remove it, or set num_nodes: 1"
    )
    assert problems("torchrun train.py", env={"PET_STANDALONE": "0", "PET_TEE": "3"}) == []
    assert problems("torchrun train.py", env={"PET_STANDALONE": {"value": "1", "override": True}}) == []
    assert problems("torchrun train.py", num_nodes=1, env={"PET_STANDALONE": "1"}) == []
    template = {"containers": [{"name": "node", "env": [{"name": "PET_STANDALONE", "value": "1"}]}]}
    [found] = problems("torchrun train.py", pod_template=template)
    assert found.startswith("pod_template.containers.node.env.PET_STANDALONE: would train in each of the 4 nodes alone")


@pytest.mark.parametrize("endpoint", ["$(PET_MASTER_ADDR):29500", {"secret": "store", "key": "endpoint"}])
def test_a_variable_may_have_the_endpoint_of_a_flag(endpoint: object) -> None:
    env = {"PET_RDZV_ENDPOINT": endpoint}
    assert problems("torchrun --rdzv-backend=c10d train.py", env=env) == []
    assert problems("torchrun train.py", env={**env, "PET_RDZV_BACKEND": "c10d"}) == []
    assert problems("tune run --nnodes=4 recipe --config c", env=env) == []
    assert len(problems("tune run recipe --config c", env=env)) == 1
    assert len(problems("torchrun train.py", env={"PET_RDZV_BACKEND": "c10d"})) == 1


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "accelerate launch --multi_gpu --num_machines 1 t.py",
            "contradicts num_nodes: 4; give the program as script instead of a",
        ),
        (
            "accelerate launch --multi_gpu --num-machines 4 --num-processes 8 t.py",
            "contradicts the 32 ranks of the job",
        ),
        ("accelerate launch --machine_rank 0 t.py", "is equal in all 4 nodes"),
        ("accelerate launch --use_fsdp --fsdp_version 2 --main_process_ip 10.0.0.1 t.py", "is not node 0 of the run"),
        ("accelerate launch --multi_gpu --main_process_port 1 t.py", "contradicts network.port: 29500"),
        ("fabric run --num-nodes=1 t.py", "contradicts num_nodes: 4"),
        ("fabric run t.py --lr 1 --num-nodes=1", "--num-nodes=1 of fabric run contradicts num_nodes: 4"),
        ("fabric run --devices=8 t.py", "fabric run without --num-nodes would train in each of the 4 nodes alone"),
        (
            "accelerate launch --multi_gpu --num_processes=4 t.py",
            "with accelerate, or set procs_per_node: 4",
        ),
        ("deepspeed --num_gpus 8 t.py", "deepspeed without --hostfile would train in each of the 4 nodes alone"),
        ("deepspeed --hostfile /job/hostfile t.py", "does not contain the hosts of the run"),
        (
            "tune run --nnodes 4 recipe --config c",
            "tune run without --rdzv-endpoint would train in each of the 4 nodes",
        ),
        ("tune run recipe --config c", "tune run without --rdzv-endpoint"),
        ("mpirun -np 8 ./a.out", "mpirun would start its ranks separately in each of the 4 nodes; set framework: mpi"),
        ("horovodrun -np 8 t.py", "horovodrun would start its ranks separately"),
    ],
)
def test_other_launchers_are_compared_too(command: str, problem: str) -> None:
    [found] = problems(command)
    assert problem in found


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --multi-gpu --num_machines 4 --num_processes 32 --machine_rank $(STEPSET_NODE_RANK) t.py",
        "accelerate launch --multi_gpu --mixed_precision bf16 --num_processes 8 t.py",
        "tune run --rdzv-endpoint=$(PET_MASTER_ADDR):29500 recipe --config c",
        "fabric run --num-nodes=4 --devices=8 t.py --num-node=1 -- --num-nodes=1",
        "fabric run t.py --num-nodes=4 --lr 1 --devices=8",
    ],
)
def test_other_launchers_may_agree_with_the_job(command: str) -> None:
    assert problems(command) == []


def test_without_num_machines_the_num_processes_of_accelerate_are_those_of_each_node() -> None:
    assert problems("accelerate launch --multi_gpu --num_processes 8 t.py") == []
    assert problems("accelerate launch --num_processes 32 --config_file two.yaml t.py") == []
    assert problems("accelerate launch --multi_gpu --num_processes 32 t.py") == [
        "command: --num_processes 32 of accelerate launch would be the number in each node, because --num_machines is"
        " missing; give the program as script instead of a command with accelerate, or write 8"
    ]


def test_the_launcher_of_deepspeed_uses_the_host_file_of_the_plan() -> None:
    own = {"kind": "deepspeed", "launcher": "deepspeed"}
    assert problems("deepspeed --hostfile /etc/deepspeed/hostfile --num_nodes 4 --num_gpus=8 t.py", own) == []
    [found] = problems("deepspeed --hostfile hosts t.py", own)
    assert found.endswith("which are in /etc/deepspeed/hostfile; write /etc/deepspeed/hostfile")


def test_the_devices_of_deepspeed_are_its_ranks() -> None:
    assert problems("deepspeed --include localhost:0,1 t.py", num_nodes=1, procs_per_node=2) == []
    for flags in ("--include localhost:0,1", "-i=localhost:0,1"):
        [found] = problems(f"deepspeed {flags} t.py", num_nodes=1)
        assert found.endswith("instead of a command with deepspeed, or set procs_per_node: 2")


@pytest.mark.parametrize("launcher", ["horovodrun -np 32", "deepspeed"])
def test_a_launcher_that_does_not_read_the_variables_of_mpirun_needs_the_host_file(launcher: str) -> None:
    assert problems(f"{launcher} --hostfile /etc/mpi/hostfile t.py", MPI) == []
    [found] = problems(f"{launcher} t.py", MPI)
    assert "without --hostfile would start all ranks in the launcher; write --hostfile /etc/mpi/hostfile" in found
    assert problems(f"{launcher} t.py", {"kind": "mpi", "launch": "command"}) == []
    [found] = problems(f"{launcher} --host-discovery-script x --hostfile hosts t.py", MPI, num_nodes=1) or [""]
    assert "without" not in found


def test_horovodrun_gets_the_hosts_by_an_option() -> None:
    [found] = problems("horovodrun -np 32 -H a:16,b:16 t.py", MPI)
    assert "which are in /etc/mpi/hostfile; write --hostfile /etc/mpi/hostfile instead, or set framework" in found
    [found] = problems("horovodrun -np 4 --hostfile /etc/mpi/hostfile t.py", MPI)
    assert "give the program as script instead of a command with horovodrun" in found


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("-np 2", "-np 2 of mpirun contradicts the 32 ranks of the job (num_nodes: 4, procs_per_node: 8); remove it"),
        ("--np=2", "contradicts the 32 ranks"),
        ("-npernode 4", "contradicts procs_per_node: 8"),
        ("-ppn 4", "contradicts procs_per_node: 8"),
        ("--pernode", "contradicts procs_per_node: 8; remove it, because stepset sets it, or set procs_per_node: 1"),
        ("-np 64", "or set procs_per_node: 16, or set framework.launch: command"),
        ("--map-by ppr:4:node", "contradicts procs_per_node: 8"),
        ("-H localhost", "replaces the hosts of the run"),
        ("--hostfile hosts", "replaces the hosts of the run, which are in /etc/mpi/hostfile; remove it"),
    ],
)
def test_a_flag_of_mpirun_that_contradicts_the_job_is_an_error(flags: str, problem: str) -> None:
    [found] = problems(f"mpirun --bind-to none {flags} ./a.out", MPI)
    assert problem in found
    assert problems(f"mpirun {flags} ./a.out", {"kind": "mpi", "launch": "command"}) == []


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 32 -N 8 --hostfile /etc/mpi/hostfile ./a.out",
        "mpirun --map-by ppr:1:socket ./a.out",
        "mpirun -np 2 ./a.out : -np 30 ./b.out",
        "mpirun_x -np 2 ./a.out",
        "torchrun --standalone t.py",
    ],
)
def test_a_flag_of_mpirun_that_agrees_is_accepted(command: str) -> None:
    assert problems(command, MPI) == []


def test_mpirun_may_name_the_launcher_that_is_the_only_node() -> None:
    as_node = {"kind": "mpi", "run_launcher_as_node": True}
    assert problems("mpirun -H localhost:8 ./a.out", as_node, num_nodes=1) == []
    assert len(problems("mpirun -H localhost:8 ./a.out", MPI, num_nodes=1)) == 1


def test_a_launcher_is_not_started_once_for_each_process_of_a_node() -> None:
    [found] = problems("torchrun train.py", WITHOUT)
    assert "torchrun starts the ranks of a node itself, and stepset would start it 8 times in each node" in found
    assert found.endswith("; remove it, or leave framework.launcher out")
    [found] = problems("torchrun --nnodes=4 --nproc-per-node=8 train.py", WITHOUT, procs_per_node=1)
    assert found.endswith("procs_per_node: 1; leave framework.launcher out, and set procs_per_node: 8")
    [alone] = problems("torchrun train.py", WITHOUT, procs_per_node=1)
    assert "torchrun without --nnodes would train in each of the 4 nodes alone" in alone
    by_reference = "torchrun --nnodes=4 --node-rank=$(RANK) --master-addr=$(MASTER_ADDR) train.py"
    assert problems(by_reference, WITHOUT, procs_per_node=1) == []
    assert "mlx.launch would start its ranks separately" in problems("mlx.launch -n 8 t.py", "mlx")[0]
