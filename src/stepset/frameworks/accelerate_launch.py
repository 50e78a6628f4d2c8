"""Finds commands in which `accelerate launch` probably does not start the ranks of a job as one world.

`accelerate launch` starts either torchrun or a single process. A single process is not connected to the other nodes,
unless variables of the pod connect it. Without `--num_machines`, torchrun reads the variables PET_* of the job. The
default configuration file of the image may change all of this. Therefore the result is a note.

Source: accelerate 1.15 commands/launch.py, launch_command, and utils/launch.py (tested).
"""

from __future__ import annotations

from collections.abc import Container

from stepset.frameworks.command_options import read_options
from stepset.frameworks.launcher_options import GRAMMARS, Meaning
from stepset.frameworks.launcher_values import JobWorld
from stepset.plan.launchers import Launcher
from stepset.spec.devices import node_devices

_TORCHRUN_OPTIONS = frozenset({"--multi_gpu", "--use_fsdp", "--use_deepspeed", "--use_megatron_lm"})
"""Options with which `accelerate launch` starts torchrun, regardless of the number of GPUs."""
_OTHER_STARTERS = frozenset({"--tpu", "--mpirun_hostfile"})
"""Options with which another program starts the processes."""
_FEW = ("0", "1")
"""Values of `--num_processes` with which `accelerate launch` does not start torchrun on a node with several GPUs."""


_CONFIGURED = frozenset({"RANK", "HF_HOME", "XDG_CACHE_HOME"})
"""Variables that connect a process, or that select another configuration file."""


def unconnected(facts: JobWorld, launcher: Launcher, given: Container[Meaning]) -> str | None:
    """Returns a note if `accelerate launch` probably starts one process in each node.

    The result is None if the number of GPUs is unknown, or if a configuration file or variables may describe the world.
    A command with `--machine_rank` but without `--num_machines` may rely on the default configuration file of the
    image.

    Args:
        launcher: the launcher in the job's command. All options of the launcher are known.
        given: the properties of the world that the options of the launcher specify.
    """
    options = {each.name: each.value for each in read_options(launcher.words, GRAMMARS["accelerate"]).read}
    by_file = "config" in given or ("node_rank" in given and "nodes" not in given) or facts.names & _CONFIGURED
    if by_file or not (facts.several or (facts.procs or 1) > 1) or options.keys() & _OTHER_STARTERS:
        return None
    devices = node_devices(facts.job)
    several_gpus = devices.count > 1 and options.get("--num_processes") not in _FEW
    remedy = "give the program as script"
    if "--cpu" in options:
        lack = "with --cpu"
    elif devices.count and not several_gpus and not options.keys() & _TORCHRUN_OPTIONS:
        lack = "without --multi_gpu"
        remedy += ", or add --multi_gpu" if options.get("--num_processes") not in _FEW else ""
    elif facts.several and not facts.torchrun and "nodes" not in given:
        lack = "without --num_machines"
        remedy += ", or add --num_machines"
    else:
        return None
    started = f"one process in each of the {facts.nodes[1]} nodes" if facts.several else "one process"
    return (
        f"{launcher.name} {lack} starts {started}, and does not connect the {facts.procs or 1} ranks per node, unless"
        f" the default configuration file of the image requests this; {remedy}, or name the file with --config_file"
    )
