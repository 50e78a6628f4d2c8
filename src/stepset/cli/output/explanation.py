"""Creates the output of `stepset explain`: the command and the environment variables of each pod group."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, TypedDict

from stepset.plan.explain import ExplainRow, explain_command, explain_plan
from stepset.plan.model import LaunchPlan, PodGroup
from stepset.plan.values import resolve
from stepset.sources.requirements import Requirements
from stepset.spec.job import TrainingJob
from stepset.targets.names import PodNames
from stepset.watch.present.sentences import counted

_VALUES = (
    "Values of a JobSet's pods. A local run has other addresses and paths, and free ports; those of a rank that runs:"
    " stepset exec NAME --rank 0 -- env"
)
_ORIGINS = {"job": "requirements of the job", "script": "metadata of the script"}


class Variable(TypedDict):
    """An environment variable of a pod group, and the rule that sets it."""

    variable: str
    value: str
    rule: str
    replaced: str
    origin: str


class StartCondition(TypedDict):
    """A condition for the start of a group's pods. Another group must first be ready or complete."""

    group: str
    condition: str


class Group(TypedDict):
    """A group of pods with the same command and variables."""

    name: str
    pods: int
    in_world: bool
    image: str | None
    command: list[str]
    command_rule: str
    serves_ssh: bool
    start_after: list[StartCondition]
    env: list[Variable]


class File(TypedDict):
    """A file that stepset writes in the pods of some groups."""

    path: str
    groups: list[str]
    lines: list[str]


class RequiredPackage(TypedDict):
    """A Python package that the ranks need.

    If the metadata of the script lists the package, `origin` is `script`. Otherwise, `origin` is `job`.
    """

    requirement: str
    origin: str


class Success(TypedDict):
    """The condition for the success of the run.

    `pods` is the number of pods of `group` that must succeed. If `first` is true, only pod 0 of `group` must succeed.
    """

    group: str
    pods: int
    first: bool


class Explanation(TypedDict):
    """The command and the variables of each pod group, and the rules that determine the command and the variables."""

    name: str
    framework: str
    num_nodes: int
    procs_per_node: int | None
    world_size: int | None
    groups: list[Group]
    files: list[File]
    ports: dict[str, int]
    requirements: list[RequiredPackage]
    requires_python: str
    success: Success
    notes: list[str]


def explanation(job: TrainingJob, plan: LaunchPlan, required: Requirements) -> Explanation:
    """Returns the explanation of a launch plan (`explained_plan`) and of the job's requirements, as plain data."""
    names = PodNames(plan, job.name, job.network.subdomain or job.name)
    rows = explain_plan(plan, names)
    return {
        "name": plan.name,
        "framework": job.framework.kind,
        "num_nodes": plan.world.num_nodes,
        "procs_per_node": plan.world.procs_per_node,
        "world_size": plan.world.size,
        "groups": [
            {
                "name": group.name,
                "pods": group.count,
                "in_world": group.in_world,
                "image": group.image,
                "command": explain_command(group, names),
                "command_rule": group.command_rule,
                "serves_ssh": group.serves_ssh,
                "start_after": [{"group": s.group, "condition": s.condition} for s in group.start_after],
                "env": [_variable(row) for row in rows if row.group == group.name],
            }
            for group in plan.groups
        ],
        "files": [
            {"path": file.path, "groups": [*file.groups], "lines": [resolve(line, names) for line in file.lines]}
            for file in plan.files
        ],
        "ports": dict(plan.ports),
        "requirements": [
            {"requirement": each, "origin": "job" if each in job.requirements else "script"}
            for each in required.packages
        ],
        "requires_python": required.python,
        "success": {"group": plan.success.group, "pods": plan.success.count, "first": plan.success.first},
        "notes": list(plan.notes),
    }


def explanation_text(job: TrainingJob, plan: LaunchPlan, required: Requirements) -> str:
    """Returns the result of `explanation` as a string with tables."""
    from stepset.cli.output.tables import Line, rendered, table

    shown = explanation(job, plan, required)
    world = world_in_words(plan.world.num_nodes, plan.world.procs_per_node)
    parts: list[Any] = [Line(f"{shown['name']}: {shown['framework']}, {world}", "bold"), Line(_VALUES, "dim")]
    for group, planned in zip(shown["groups"], plan.groups, strict=True):
        pods = counted(group["pods"], "pod")
        beside = "" if group["in_world"] else ", outside the world"
        after = "".join(f", after {s['group']} is {s['condition'].lower()}" for s in group["start_after"])
        parts += ["", Line(f"{group['name']}: {pods}{beside}{after}", "bold cyan")]
        parts.append(Line(f"  runs {_runs(planned, group['command'])}"))
        parts += [Line(f"  image {group['image']}")] if group["image"] else []
        if group["command_rule"]:
            parts.append(Line(f"  ({group['command_rule']})", "dim"))
        if group["env"]:
            rows = [(e["variable"], e["value"], e["rule"], e["replaced"]) for e in group["env"]]
            parts += ["", table(("Variable", "Value", "Rule", "Replaced"), rows, ("cyan", "", "dim", "yellow"))]
    for file in shown["files"]:
        parts += ["", Line(f"file {file['path']} in {', '.join(file['groups'])}", "bold cyan")]
        parts += [Line(f"  {line}") for line in file["lines"]]
    required_rows = [(each["requirement"], _ORIGINS[each["origin"]]) for each in shown["requirements"]]
    if shown["requires_python"]:
        required_rows.append((f"Python {shown['requires_python']}", _ORIGINS["script"]))
    if required_rows:
        parts += ["", Line("requirements: uv installs the packages that the ranks' Python lacks", "bold cyan")]
        parts += [table(("Requirement", "From"), required_rows, ("cyan", "dim"))]
    for note in shown["notes"]:
        parts += ["", Line(f"note: {note}", "yellow")]
    return rendered(*parts)


def _variable(row: ExplainRow) -> Variable:
    return {
        "variable": row.variable,
        "value": row.value,
        "rule": row.rule,
        "replaced": row.replaced,
        "origin": row.origin,
    }


def _runs(group: PodGroup, words: Sequence[str]) -> str:
    if group.serves_ssh:
        return "an ssh server until the launcher has ended"
    if group.command:
        return shlex.join(words)
    of_image = f"the command of the image {group.image}"
    return f"{of_image} with {shlex.join(words)}" if words else of_image


def world_in_words(num_nodes: int, procs_per_node: int | None) -> str:
    """Returns the numbers of nodes, processes and ranks of a training world in words.

    >>> world_in_words(2, 2)
    '2 nodes x 2 processes = 4 ranks'
    """
    nodes = counted(num_nodes, "node")
    if procs_per_node is None:
        return f"{nodes}, one process for each device"
    procs = counted(procs_per_node, "process", "processes")
    return f"{nodes} x {procs} = {counted(num_nodes * procs_per_node, 'rank')}"
