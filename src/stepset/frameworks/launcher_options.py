"""The launcher options that describe the world of a job.

Examples are the options for the number of nodes and for the address of node 0.

Sources: torch 2.15 distributed/run.py and launch.py, torchtune 0.6.1 _cli/run.py, accelerate 1.15 commands/launch.py,
deepspeed 0.19 launcher/runner.py, lightning 2.6 fabric/cli.py, horovod 059f690 runner/launch.py, mlx 0.32
_distributed_utils/launch.py. The options of mpirun are in `stepset.frameworks.mpirun`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stepset.frameworks.command_options import Grammar, Option, Options, read_options
from stepset.frameworks.mpirun import MPIRUN
from stepset.plan.launchers import Launcher

Meaning = Literal[
    "nodes", "procs", "total", "node_rank", "address", "port", "endpoint", "backend", "rdzv_id", "rdzv_conf",
    "restarts", "standalone", "local_address", "hosts", "hostfile", "config",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """A property of the world. An option of a launcher or a variable of the job specifies the property.

    Args:
        meaning: the property, such as the number of nodes.
        value: the value of the property. "" for an option without a value.
        written: the option or variable as the user wrote it, for messages. Examples: `--nnodes=1`, `-np 2`.
        at: the index of the option in `Launcher.words`. None for a variable.
    """

    meaning: Meaning
    value: str
    written: str
    at: int | None


_TORCHRUN_WORLD: dict[str, Meaning] = {
    "--nnodes": "nodes",
    "--nproc_per_node": "procs",
    "--node_rank": "node_rank",
    "--master_addr": "address",
    "--master_port": "port",
    "--rdzv_endpoint": "endpoint",
    "--rdzv_backend": "backend",
    "--rdzv_id": "rdzv_id",
    "--rdzv_conf": "rdzv_conf",
    "--max_restarts": "restarts",
    "--standalone": "standalone",
    "--local_addr": "local_address",
}
TORCHRUN_OPTIONS_SET_BY_STEPSET = _TORCHRUN_WORLD.keys() - {"--max_restarts"}
"""Options that users do not need, because stepset sets the variables PET_*. docs/airflow-kpo.md lists these options."""
_TORCHRUN = Grammar(
    one=frozenset({
        *(_TORCHRUN_WORLD.keys() - {"--standalone"}), "--monitor_interval", "--start_method", "--event_log_handler",
        "--role", "--log_dir", "-r", "--redirects", "-t", "--tee", "--log_line_prefix_template",
        "--local_ranks_filter", "--duplicate_stdout_filters", "--duplicate_stderr_filters", "--logs_specs",
        "--numa_binding", "--signals_to_handle", "--shutdown_timeout",
    }),
    none=frozenset({
        "--standalone", "-m", "--module", "--no_python", "--run_path", "--virtual_local_rank", "--use_env",
    }),
    argparse=True,
)  # fmt: skip
_ACCELERATE_WORLD: dict[str, Meaning] = {
    "--num_machines": "nodes",
    "--num_processes": "total",
    "--machine_rank": "node_rank",
    "--main_process_ip": "address",
    "--main_process_port": "port",
    "--rdzv_backend": "backend",
    "--rdzv_conf": "rdzv_conf",
    "--max_restarts": "restarts",
    "--config_file": "config",
}
_ACCELERATE = Grammar(
    one=frozenset({
        *_ACCELERATE_WORLD, "--mixed_precision", "--num_cpu_threads_per_process", "--gpu_ids", "-t",
        "--tee", "--log_dir", "--role", "--monitor_interval", "--vm", "--env", "--main_training_function",
        "--zero_stage", "--offload_optimizer_device", "--offload_param_device", "--offload_optimizer_nvme_path",
        "--offload_param_nvme_path", "--gradient_accumulation_steps", "--gradient_clipping", "--zero3_init_flag",
        "--zero3_save_16bit_model", "--dynamo_backend", "--dynamo_mode", "--mpirun_hostfile",
    }),
    none=frozenset({
        "-q", "--quiet", "--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm",
        "--use_parallelism_config", "--dynamo_use_fullgraph", "--dynamo_use_dynamic",
        "--dynamo_use_regional_compilation", "--enable_cpu_affinity", "--same_network", "-m", "--module",
        "--no_python", "--tpu_cluster", "--no_tpu_cluster", "--tpu_use_sudo", "--downcast_bf16", "--debug",
        "--fp8_use_autocast_during_eval",
    }),
    one_prefixes=("--fsdp_", "--deepspeed_", "--megatron_lm_", "--parallelism_config_", "--fp8_", "--aws_"),
    argparse=True,
)  # fmt: skip
_DEEPSPEED_WORLD: dict[str, Meaning] = {
    "--num_nodes": "nodes",
    "--num_gpus": "procs",
    "--num_accelerators": "procs",
    "--node_rank": "node_rank",
    "--master_addr": "address",
    "--master_port": "port",
    "-H": "hostfile",
    "--hostfile": "hostfile",
}
_DEEPSPEED = Grammar(
    one=frozenset({
        *_DEEPSPEED_WORLD, "-i", "--include", "-e", "--exclude", "--launcher", "--launcher_args",
        "--enable_each_rank_log", "--autotuning", "--bind_core_list", "--ssh_port", "--venv_script", "--log_level",
        "--min_elastic_nodes", "--max_elastic_nodes",
    }),
    none=frozenset({
        "--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi", "--save_pid",
        "--bind_cores_to_rank", "--elastic_training", "-q", "--quiet",
    }),
    argparse=True,
)  # fmt: skip
_FABRIC_WORLD: dict[str, Meaning] = {
    **dict.fromkeys(("--num-nodes", "--num_nodes"), "nodes"),
    "--devices": "procs",
    **dict.fromkeys(("--node-rank", "--node_rank"), "node_rank"),
    **dict.fromkeys(("--main-address", "--main_address"), "address"),
    **dict.fromkeys(("--main-port", "--main_port"), "port"),
}
_FABRIC = Grammar(
    one=frozenset({*_FABRIC_WORLD, "--accelerator", "--strategy", "--precision"}), none=frozenset(), interspersed=True
)
_HOROVOD_WORLD: dict[str, Meaning] = {
    "-np": "total",
    "--num_proc": "total",
    "-H": "hosts",
    "--hosts": "hosts",
    "-hostfile": "hostfile",
    "--hostfile": "hostfile",
}
_HOROVOD = Grammar(
    one=frozenset({
        *_HOROVOD_WORLD, "-p", "--ssh_port", "-i", "--ssh_identity_file", "--start_timeout", "--network_interfaces",
        "--network_interface", "--output_filename", "--mpi_args",
    }),
    none=frozenset({"--verbose", "--gloo", "--mpi", "--disable_cache"}),
    argparse=True,
)  # fmt: skip
_MLX_WORLD: dict[str, Meaning] = {"--hosts": "hosts"}
_MLX = Grammar(
    one=frozenset({
        *_MLX_WORLD, "-n", "--repeat_hosts", "--hostfile", "--backend", "--env", "--mpi_arg", "--connections_per_ip",
        "-p", "--starting_port", "--cwd", "--nccl_port", "--python",
    }),
    none=frozenset({"--verbose", "--print_python"}),
    argparse=True,
)  # fmt: skip
_MPIRUN_WORLD: dict[str, Meaning] = {
    **dict.fromkeys(("-n", "-np", "--n", "--np", "-c"), "total"),
    **dict.fromkeys(("-N", "-npernode", "--npernode", "-ppn", "-perhost"), "procs"),
    **dict.fromkeys(("-H", "-host", "--host", "-hosts"), "hosts"),
    **dict.fromkeys(("-f", "-machinefile", "--machinefile", "-hostfile", "--hostfile"), "hostfile"),
}
_LAUNCHERS: Mapping[str, tuple[Grammar, Mapping[str, Meaning]]] = {
    "torchrun": (_TORCHRUN, _TORCHRUN_WORLD),
    "tune": (_TORCHRUN, _TORCHRUN_WORLD),
    "accelerate": (_ACCELERATE, _ACCELERATE_WORLD),
    "deepspeed": (_DEEPSPEED, _DEEPSPEED_WORLD),
    "fabric": (_FABRIC, _FABRIC_WORLD),
    "horovodrun": (_HOROVOD, _HOROVOD_WORLD),
    "mlx.launch": (_MLX, _MLX_WORLD),
    "mpirun": (MPIRUN, _MPIRUN_WORLD),
}
GRAMMARS: Mapping[str, Grammar] = {kind: grammar for kind, (grammar, _) in _LAUNCHERS.items()}
"""A mapping from `Launcher.kind` to the options of this kind of launcher."""


@dataclass(frozen=True, slots=True)
class World:
    """The world that the options of a launcher describe.

    Args:
        settings: one setting for each property, in the order of the options. If several options set the same property,
            only the last option is included.
        complete: whether all options of the launcher are known. False if the command has an option that the `Grammar`
            does not contain, or if a variable such as `$ARGS` can contain further options.
    """

    settings: tuple[Setting, ...]
    complete: bool


def described_world(launcher: Launcher) -> World:
    """Returns the world that the options of a launcher describe.

    If the launcher is mpirun and starts several programs, which are separated by `:`, the result has no settings.
    """
    grammar, meanings = _LAUNCHERS[launcher.kind]
    if launcher.kind == "mpirun" and ":" in launcher.words:
        return World((), complete=False)
    options = read_options(launcher.words, grammar)
    settings = {each.meaning: each for each in _settings(launcher, options.read, meanings)}
    return World(tuple(settings.values()), _complete(launcher.words, options, grammar))


def _complete(words: Sequence[str], options: Options, grammar: Grammar) -> bool:
    """Returns whether `options` contains all options of the launcher."""
    if options.program is None:
        return False
    taken = {at for option in options.read for at in range(option.at, option.at + option.length)}
    others = range(len(words) if grammar.interspersed else options.program + 1)
    return not any(words[at].startswith("$") for at in others if at not in taken)


def torchrun_variable(name: str) -> Meaning | None:
    """Returns the property of the world that a variable such as PET_STANDALONE sets for torchrun.

    If torchrun does not read the variable as an option, the function returns None.
    """
    return _TORCHRUN_WORLD.get("--" + name.removeprefix("PET_").lower()) if name.startswith("PET_") else None


def _settings(launcher: Launcher, read: tuple[Option, ...], meanings: Mapping[str, Meaning]) -> Iterator[Setting]:
    for option in read:
        written = " ".join(launcher.words[option.at : option.at + option.length])
        if meaning := meanings.get(option.name):
            yield Setting(meaning, option.value or "", written, option.at)
        elif option.name in ("--map-by", "-map-by") and (option.value or "").startswith("ppr:"):
            _, number, unit, *_ = [*(option.value or "").split(":"), "", ""]
            if unit == "node":
                yield Setting("procs", number, written, option.at)
        elif option.name in ("-pernode", "--pernode"):
            yield Setting("procs", "1", written, option.at)
        elif option.name in ("-i", "--include") and launcher.kind == "deepspeed":
            devices = (option.value or "").partition(":")[2]
            if devices and "@" not in devices:
                yield Setting("procs", str(len(devices.split(","))), written, option.at)
