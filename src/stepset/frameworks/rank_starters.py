"""Finds commands that may not start the ranks of a job, if a launcher in each node must start these ranks.

torchrun or the `deepspeed` launcher starts the ranks of such a job. A command replaces this launcher. A command that
starts no launcher runs once in each node, and the processes of the nodes are not connected. Such a run would train a
separate model in each node, and succeed.
"""

from __future__ import annotations

import posixpath
import re
import shlex

from stepset.frameworks.launcher_flags import Words, literal_command
from stepset.plan.launchers import PythonProgram, find_launcher, find_python
from stepset.plan.model import NODE, LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.options import DeepSpeed, Torch, TorchTune
from stepset.spec.scalars import shortened
from stepset.spec.template import node_env_names

_LAUNCHER_NAMES = re.compile(
    r"(?<![\w-])(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|fabric run|tune run|horovodrun"
    r"|mpirun|mpiexec|srun)(?![\w-])"
)
"""Matches the name of a launcher in a word of a command, such as the text after `sh -c`. The command may start it."""
_MAY_START_RANKS = re.compile(
    r"launch|torchrun|distributed\.run|spawn|start_processes|deepspeed|horovod|lightning|torchtune|(?<![a-z])ray(?![a-z])"
)
"""Matches names of scripts and modules, and code, that may start ranks."""
_WORLD = frozenset({"RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR"})
"""Variables that connect a process to the world, if the job or `env_layer` sets them."""
_READS_WORLD = re.compile(
    r"(NODE|MACHINE)[-_]?RANK|NUM[-_]NODES|NNODES|MASTER[-_]ADDR|WORLD[-_]SIZE|(?<![a-z]-)\bRANK\b|PET_|DIST[-_]URL|environ"
    r"|subprocess|start_processes|spawn",
    re.IGNORECASE,
)
"""Matches words that use the position of the node in the world. With them, a program can connect the nodes itself."""


def notes_on_ranks(job: TrainingJob, plan: LaunchPlan) -> list[str]:
    """Returns a note about a command that replaces the launcher of a job and may not start the ranks of the job.

    The result is not an error, because any program may start or connect ranks in ways that stepset cannot know.
    """
    launcher = _launcher(job)
    size = plan.world.size or plan.world.num_nodes
    if launcher is None or size == 1:
        return []
    command, args, _ = literal_command(job, plan.group(NODE))
    words = [*command.words, *args.words]
    if not command.words or find_launcher(words) or _LAUNCHER_NAMES.search(" ".join(words)):
        return []
    names = {*(entry.name for entry in plan.group(NODE).env), *node_env_names(job.pod_template)}
    if "RANK" in names and plan.world.procs_per_node == 1:
        return []  # each node runs one rank, which reads its position in the world from these variables
    found = find_python(words)
    if found and not names & _WORLD and not _may_connect(words, found[1]):
        return [_python_note(job, plan, command, *found, launcher)]
    return [_note(plan, command, launcher)]


def _launcher(job: TrainingJob) -> str | None:
    """Returns the launcher that must start the ranks in each node. None if the agent or mpirun starts the ranks."""
    framework = job.framework
    if isinstance(framework, DeepSpeed):
        return None if framework.launcher == "mpirun" else framework.launcher
    if isinstance(framework, TorchTune) or (isinstance(framework, Torch) and framework.launcher == "torchrun"):
        return "torchrun"
    return None


def _may_connect(words: list[str], program: PythonProgram) -> bool:
    """Returns whether a Python program may start the ranks of a node, or connect its process to the other nodes.

    `words` are all words of the command, because the words before the program can set variables.
    """
    name = posixpath.basename(program.text) if program.kind == "script" else program.text
    return "$" in name or _MAY_START_RANKS.search(name) is not None or any(map(_READS_WORLD.search, words))


def _ranks(plan: LaunchPlan) -> str:
    return f"{plan.world.size} ranks (num_nodes: {plan.world.num_nodes}, procs_per_node: {plan.world.procs_per_node})"


def _python_note(
    job: TrainingJob, plan: LaunchPlan, command: Words, words: list[str], program: PythonProgram, launcher: str
) -> str:
    nodes = plan.world.num_nodes
    started = f"{nodes} processes, one in each node," if nodes > 1 else "1 process"
    run = shortened(shlex.join(words[: program.end]))
    return (
        f"{command.place}: {run} starts {started} instead of the {_ranks(plan)}, unless the program itself starts the"
        f" ranks and connects the nodes; {_remedy(job, program, launcher)}"
    )


def _remedy(job: TrainingJob, program: PythonProgram, launcher: str) -> str:
    if job.command is None:
        return f"without this command, {launcher} starts the program of the job"
    given = "a script" if program.kind == "code" else f"{program.kind}: {shortened(shlex.quote(program.text))}"
    return f"{launcher} starts the ranks if you give {given} instead of command"


def _note(plan: LaunchPlan, command: Words, launcher: str) -> str:
    one = "each node runs one process" if plan.world.num_nodes > 1 else "only one process runs"
    return (
        f"{command.place}: {shortened(shlex.join(command.words[:2]))} must start the {_ranks(plan)} itself, for example"
        f" with {launcher}; stepset does not check this, and without a launcher {one}"
    )
