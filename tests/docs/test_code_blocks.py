"""Every code block of the pages for users: jobs are valid, commands and calls have arguments that exist.

Commands are parsed; tests/first_hour/test_pages.py runs those of some pages. The pages for contributors
(docs/architecture.md, docs/design, docs/testing) contain diagrams.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import groupby, takewhile
from typing import Any

import pytest
import yaml
from tests.code_blocks import ROOT, Block, blocks

from stepset.cli.app import build
from stepset.errors import StepsetError
from stepset.frameworks import make_plan
from stepset.run_status import FailureKind
from stepset.spec import TrainingJob
from stepset.spec.load import parse_job
from stepset.watch.advice import ADVICE

PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(ROOT.glob("docs/*.md")) if page.name != "architecture.md"),
    *sorted(ROOT.glob("docs/frameworks/*.md")),
    *sorted(ROOT.glob("docs/guides/*.md")),
]
BLOCKS = [block for page in PAGES for block in blocks(page)]
_RUNNABLE = ("script", "module", "command", "function")
_OF_AIRFLOW = {
    "default_args",
    "inlets",
    "multiple_outputs",
    "outlets",
    "params",
    "retries",
    "retry_delay",
    "retry_policy",
    "task_id",
}
"""Parameters of all operators of Airflow."""
_ROWS = {
    *("first failure", "error", "frame", "last lines", "events", "restarts", "aftermath"),
    *("advice", "see", "resume", "logs"),
}
_ROW = re.compile(r"^  (\w[\w ]{0,12}\w) +(\S.*)$", re.MULTILINE)
_RECORDED = re.compile(
    r"^( *)(?:\w+ )*(?:def|class|component|type|module) ([\w.]+)(.*(?:\n\1 +.*|\n\1\).*)*)", re.MULTILINE
)


def problems(block: Block) -> list[str]:
    """Returns what is wrong with a block."""
    checkers = {"yaml": _yaml, "python": _python, "sh": _shell, "console": _shell, "ini": _ini, "json": _json}
    checkers |= {"text": _output, "{toctree}": lambda _: iter(())}
    if block.language not in checkers:
        return [f"no check for the language {block.language!r}"]
    return list(checkers[block.language](block.text))


def _yaml(text: str) -> Iterator[str]:
    for document in yaml.safe_load_all(text):
        if "apiVersion" in document:
            yield from _kubernetes(document)
            continue
        program = {} if set(_RUNNABLE) & document.keys() else {"script": "train.py"}
        try:
            make_plan(parse_job({"image": "registry.example/train:1", **program, **document}))
        except StepsetError as error:
            yield str(error)


def _kubernetes(document: dict[str, Any]) -> Iterator[str]:
    """tests/cluster/test_guide_manifests.py sends the objects to an API server."""
    if not {"kind", "metadata"} <= document.keys():
        yield "an object of Kubernetes without kind or metadata"
    elif document["kind"] == "CronJob":
        if "concurrencyPolicy" not in document["spec"]:
            yield "a CronJob without concurrencyPolicy"
        containers = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        if not all({"requests", "limits"} <= each.get("resources", {}).keys() for each in containers):
            yield "a container without requests and limits"


def _json(text: str) -> Iterator[str]:
    json.loads(text)
    yield from ()


def _ini(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    known = (ROOT / "providers/stepset_airflow/get_provider_info.py").read_text(encoding="utf-8")
    for name in parser["stepset"]:
        if f'"{name}": _option(' not in known:
            yield f"[stepset] has no option {name}"


def _shell(text: str) -> Iterator[str]:
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    yield from _output(text)
    for line in lines:
        words = shlex.split(line, comments=True)
        for command in _commands(words):
            yield from _command(command)


def _commands(words: list[str]) -> Iterator[list[str]]:
    """Yields the commands of a line, without redirections."""
    for is_separator, command in groupby(words, lambda word: word in ("|", "&&", "||", ";")):
        if not is_separator:
            yield list(takewhile(lambda word: word not in ("<", ">"), command))


def _command(words: list[str]) -> Iterator[str]:
    match words:
        case ["stepset", name, *rest]:
            command = build().commands.get(name)
            if command is None:
                yield f"no command stepset {name}"
                return
            try:
                command.make_context(name, rest)
            except Exception as error:  # noqa: BLE001  # click's errors have no public base class in every version
                yield f"stepset {name}: {error}"
        case ["make", target, *_]:
            if f"\n{target}: " not in (ROOT / "Makefile").read_text(encoding="utf-8"):
                yield f"no target {target}"
        case ["pip", "install", *packages]:
            for package in packages:
                extra = re.fullmatch(r"(?:stepset|\.)\[(.*)\]", package)
                for name in extra[1].split(",") if extra else ():
                    if name not in _extras():
                        yield f"no extra {name}"


@cache
def _extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def _output(text: str) -> Iterator[str]:
    """Checks the output of a failed run: the kind of the failure, the names of its rows, and the advice."""
    found = re.search(r"run \S+ failed after [^:]+: (\w+): ", text)
    if not found:
        return
    if found[1] not in [kind.value for kind in FailureKind]:
        yield f"no kind {found[1]}"
        return
    rows = dict(_ROW.findall(text))
    if rows.keys() - _ROWS:
        yield f"no rows {rows.keys() - _ROWS}"
    if rows["see"] != f"stepset failures {found[1]}":
        yield "another kind"
    # The advice for a run that hung names the rank that blocks the others.
    if rows["advice"] != ADVICE[FailureKind(found[1])] and "had made no progress for" not in text:
        yield "another advice"


@cache
def _recorded() -> dict[str, str]:
    """The public names, as in docs/api, with their signatures."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/api/*.txt")))
    return {found[2]: found[3] for found in _RECORDED.finditer(text) if "." in found[2]}


def _accepted(name: str) -> set[str] | None:
    """The keyword arguments of a public name; None if all are accepted."""
    signature = _recorded()[name]
    constructor = re.search(r"def __init__\((.*?)\) -> None", signature, re.DOTALL)
    names = set(re.findall(r"[\n (,](?:input )?(\w+): ", constructor[1] if constructor else signature))
    if "fields: Any" in signature or "fields: Unpack" in signature:
        names |= TrainingJob.model_fields.keys()
    return names | (_OF_AIRFLOW if name.startswith("stepset_airflow.") else set())


def _python(text: str) -> Iterator[str]:
    tree = compile(text, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = dict(_imported(tree))
    for name in names.values():
        package, _, rest = name.partition(".")
        if rest and name not in _recorded() and not _module(name):
            yield f"{package} has no {rest}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := _called(node.func, names)):
            if called.count(".") == 1 and called not in _recorded():
                yield f"no {called}"
            elif called in _recorded() and (accepted := _accepted(called)) is not None:
                for keyword in node.keywords:
                    if keyword.arg and keyword.arg not in accepted:
                        yield f"{called} has no parameter {keyword.arg}"


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name, each.name) for each in node.names if _ours(each.name))
        elif isinstance(node, ast.ImportFrom) and node.module and _ours(node.module):
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _ours(module: str) -> bool:
    return module.partition(".")[0] in ("stepset", "stepset_airflow", "stepset_kfp")


def _module(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    path, _, attribute = name.rpartition(".")
    places = [ROOT / top for top in ("src", "providers", "components")]
    files = [place / f"{path.replace('.', '/')}{end}" for place in places for end in (".py", "/__init__.py")]
    return any(file.exists() and re.search(rf"\b{attribute}\b", file.read_text("utf-8")) for file in files)


def _called(function: Any, names: dict[str, str]) -> str:
    """The full name of a called function of stepset; empty for others."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.insert(0, function.attr)
        function = function.value
    if isinstance(function, ast.Name) and function.id in names:
        return ".".join([names[function.id], *parts])
    return ""


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_block_is_correct(block: Block) -> None:
    assert problems(block) == []


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("", "stepset list", "no check for the language ''"),
        ("yaml", "num_node: 2", "num_node"),
        ("yaml", "framework: {kind: torch, launcher: mpirun}", "launcher"),
        ("yaml", "apiVersion: v1", "an object of Kubernetes without kind or metadata"),
        (
            "yaml",
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {concurrencyPolicy: Forbid,"
            " jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: a}]}}}}}",
            "a container without requests and limits",
        ),
        ("python", "from stepset import runs_all", "stepset has no runs_all"),
        ("python", "import stepset\nstepset.start('a.py')", "no stepset.start"),
        ("python", "import stepset\nstepset.run('a.py', num_node=2)", "stepset.run has no parameter num_node"),
        (
            "python",
            "from stepset_airflow import DistributedTrainOperator as D\nD(task_id='a', scrip='a.py')",
            "stepset_airflow.DistributedTrainOperator has no parameter scrip",
        ),
        (
            "python",
            "from stepset_kfp import distributed_train\ndistributed_train(script='a.py', node=2)",
            "stepset_kfp.distributed_train has no parameter node",
        ),
        ("sh", "stepset start a.py", "no command stepset start"),
        ("console", "$ stepset run a.py --node 2\noutput", "stepset run: No such option"),
        ("sh", "stepset render a.yaml | kubectl apply --what -f - && stepset lis", "no command stepset lis"),
        ("sh", "make demos", "no target demos"),
        ("sh", "pip install 'stepset[k8s]'", "no extra k8s"),
        ("ini", "[stepset]\nurl = x", "[stepset] has no option url"),
        ("text", "run a failed after 1 s: Oops: x", "no kind Oops"),
        (
            "text",
            "run a failed after 1 s: Lost: x\n  advice  Pray.\n  see           stepset failures Lost",
            "another advice",
        ),
    ],
)
def test_a_wrong_block_is_found(language: str, text: str, problem: str) -> None:
    [found] = problems(Block(ROOT / "README.md", 1, language, text))
    assert problem in found
