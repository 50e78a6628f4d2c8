"""Plans TorchTune jobs. Every pod runs `tune run` with a recipe and a config that fit the model and the devices.

Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/torch/torchtune.go. `tune run` reads the PET_* variables
only if the command contains an option of torchrun (torchtune 0.6.1, tested). Therefore stepset adds the option
`--rdzv_endpoint`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepset.errors import BadInputError
from stepset.frameworks.common import MASTER, MASTER_HOST, device_notes, node_group, single_group_plan
from stepset.frameworks.framework_spec import FrameworkSpec, Listeners
from stepset.frameworks.kinds.torch import RESERVED, TORCHRUN_STORE, nproc_per_node, static_env, torchrun_plan
from stepset.plan.code import script_in_code
from stepset.plan.model import LaunchPlan
from stepset.plan.values import CodePath, PortNumber, Text, text, texts
from stepset.spec.devices import node_devices
from stepset.spec.job import TrainingJob
from stepset.spec.options import TorchTune

TUNE_RUN = ["tune", "run"]
MULTI_NODE_MODELS = ("llama3_3/70B",)
MODELS = ("llama3_2/1B", "llama3_2/3B", "qwen2_5/1.5B", *MULTI_NODE_MODELS)
_QWEN = "qwen2_5/1.5B"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a TorchTune job.

    Raises BadInputError if TorchTune has no recipe for the model and the training method.
    """
    options = job.framework
    assert isinstance(options, TorchTune)
    if job.command is not None and (job.command != TUNE_RUN or options.launch == "command"):
        return torchrun_plan(job)
    for entry in ("module", "function"):
        if getattr(job, entry) is not None:
            raise BadInputError(f"{entry}: tune runs a recipe; give a recipe as script, or give only framework.model")
    nproc, known = nproc_per_node(job)
    command: list[Text] = [*texts(TUNE_RUN)]
    if is_distributed(job, nproc):
        command.append(text("--rdzv_endpoint=", MASTER_HOST, ":", PortNumber(MASTER)))
    recipe, config = _recipe_and_config(job, options, nproc)
    command += [recipe, text("--config"), text(config)]
    node = node_group(job, static_env(job, nproc, master=False), tuple(command), reserved=RESERVED)
    return single_group_plan(job, node, known, notes=device_notes(job))


def is_distributed(job: TrainingJob, nproc: str) -> bool:
    """Returns whether the job has more than one process."""
    devices = node_devices(job).count
    return job.num_nodes > 1 or (nproc.isdigit() and int(nproc) > 1) or (not nproc.isdigit() and devices > 1)


def uses_lora(args: Sequence[str]) -> bool:
    """Returns whether the args select LoRA."""
    return any("model.lora_attn_modules" in arg for arg in args)


def uses_qlora(args: Sequence[str]) -> bool:
    """Returns whether the args select a quantised base model without DoRA."""
    quantised = any("model.quantize_base" in arg and arg.lower().endswith("=true") for arg in args)
    return quantised and not any(arg.lower() == "model.use_dora=true" for arg in args)


def builtin_recipe(model: str, num_nodes: int, one_device: bool, args: Sequence[str]) -> tuple[str, str]:
    """Returns the names of the recipe and the config that TorchTune contains for a model.

    Args:
        model: the name of the model, such as `llama3_2/1B`.
        one_device: whether a node runs only one process.
        args: the arguments of `tune run` that override settings of the config. They can select LoRA or QLoRA.

    >>> builtin_recipe("llama3_2/1B", 1, True, [])
    ('full_finetune_single_device', 'llama3_2/1B_full_single_device')
    """
    config = "qlora" if uses_qlora(args) else "lora" if uses_lora(args) else "full"
    method = "full" if config == "full" else "lora"
    if num_nodes == 1 and one_device:
        return f"{method}_finetune_single_device", f"{model}_{config}_single_device"
    if num_nodes == 1:
        return f"{method}_finetune_distributed", f"{model}_{config}"
    return "full_finetune_distributed", f"{model}_full_multinode"


def _recipe_and_config(job: TrainingJob, options: TorchTune, nproc: str) -> tuple[Text, str]:
    if options.recipe and options.config:
        return text(options.recipe), options.config
    if options.model is None:
        raise BadInputError("framework: torchtune needs a model, or a recipe with its config; give one of them")
    _check_model(job, options.model, nproc)
    devices = node_devices(job).count
    one_device = nproc == "1" or (not nproc.isdigit() and devices == 1)
    recipe, config = builtin_recipe(options.model, job.num_nodes, one_device, job.args)
    if job.script is not None:
        return text(CodePath(script_in_code(job))), config
    return text(recipe), config


def _check_model(job: TrainingJob, model: str, nproc: str) -> None:
    """Raises BadInputError for the combinations of settings that Kubeflow Trainer rejects."""
    if model not in MODELS:
        raise BadInputError(f"framework.model: {model!r} has no built-in recipe; use one of {', '.join(MODELS)}")
    if job.num_nodes > 1 and model not in MULTI_NODE_MODELS:
        raise BadInputError(f"num_nodes: {model} trains on one node only; set num_nodes: 1")
    if job.num_nodes > 1 and (uses_lora(job.args) or uses_qlora(job.args)):
        raise BadInputError("args: TorchTune has no LoRA recipe for several nodes; set num_nodes: 1")
    if not uses_qlora(job.args):
        return
    if model == _QWEN:
        raise BadInputError(f"args: TorchTune has no QLoRA recipe for {model}; leave model.quantize_base out")
    if is_distributed(job, nproc) and model not in MULTI_NODE_MODELS:
        raise BadInputError(f"procs_per_node: QLoRA of {model} needs one device; set procs_per_node: 1 and gpus: 1")


SPEC = FrameworkSpec(
    name="TorchTune",
    plan=plan,
    listeners=Listeners(TORCHRUN_STORE, ""),
    world_variables=(),  # those of torch
    programs={"tune": "install torchtune"},
    packages=("torchtune",),
    imports=(),  # its users have a recipe, not a script
    pages=("torchtune",),
)
