"""Writes docs/job-file.md from the models: every field with its type, default and meaning. `make docs` runs it.

A test compares the page with the output.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stepset.spec import options, parts
from stepset.spec.environ import EnvField, EnvSecret, EnvText
from stepset.spec.field_docs import field_docs
from stepset.spec.job import TrainingJob
from stepset.spec.known_devices import AUTO, KNOWN
from stepset.spec.quantity import format_duration
from stepset.spec.resources import Resources

PAGE = Path(__file__).resolve().parent.parent / "docs" / "job-file.md"
EXAMPLE = PAGE.parent.parent / "examples" / "job.yaml"

_INTRO = """# The job file

A job is a YAML or JSON file, a Python mapping, or the parameters of an operator, with the same names everywhere.
An unknown key is an error that names the nearest known one. `stepset validate JOB.yaml` checks a file, `stepset schema`
prints its JSON Schema for your editor.

```yaml
{example}```

Durations are whole seconds or text such as `90s`, `30m`, `12h`, `1d12h`. Quantities are those of Kubernetes
(`500m`, `4`, `16Gi`). In values of `env`, in `command` and in `args`, `$(NAME)` is replaced by the value of the
variable NAME, as in Kubernetes, also in local runs.

A value of `env`, `args`, `command`, a label or any other text field is the text in the file. A number or a boolean
needs quotes there if YAML or JSON would change it, and is an error without them:

| in the file | YAML reads | write |
|---|---|---|
| `1.10` | 1.1 | `"1.10"` |
| `017` | 15 (octal) | `"017"` |
| `12:30` | 750 (base 60) | `"12:30"` |
| `1_000` | 1000 | `"1_000"` |
| `yes`, `on`, `True` | true | `"yes"` |
| `2026-11-25` | a date | `"2026-11-25"` |
| `1e3` in JSON | 1000.0 | `"1e3"` |
| `8`, `0.5`, `1e3` in YAML | the same text | unchanged |

On a command line the quotes must reach stepset: `--set 'env.VERSION="1.10"'`, or `--env VERSION=1.10`. A field that is
a number, such as `num_nodes`, takes no octal number and no base 60. `command` and `args` must be lists; the error for a
text shows the list to write instead.

Three pages contain details of these fields. [Shipped code](security.md#shipped-code) states which files of `code` are
not shipped, and which are errors. [Secrets](security.md#secrets) states which values of Secrets stepset does not
replace by `***`. [Targets](targets.md#what-a-failed-pod-means-jobset-trainjob) states when a `deadline` starts, and
which restarts count.
"""

_DEVICES = """
### What `procs_per_node: auto` becomes

One process for each accelerator that a pod requests. Not every unit of a resource is an accelerator; this table states
what `auto` and `gpu` become for each resource that stepset knows. In its names `*` and `?` stand for any text and any
character; the first row that matches a name applies.

| resource | one unit is | `auto` becomes | source |
|---|---|---|---|
{rows}

Without an accelerator `auto` is the number of CPUs, rounded up, for torch, torchtune, and deepspeed without mpirun, and
1 for the other frameworks. JAX runs one process per node, whatever the node's devices are; `plain` runs one for `auto`.
If a pod requests devices of several kinds, only one kind counts. Whole devices take precedence over shares; among
equals, names with "gpu" take precedence over others; then the alphabetically first name counts. Two MIG profiles, or
MIG devices beside GPUs, are an error. `stepset explain` states the applied rule. For GPUs torchrun counts the devices
itself (`PET_NPROC_PER_NODE=auto`), as in Kubeflow Trainer.

Kubernetes accepts only whole numbers of these resources, and only if request and limit are equal. `limits` alone set
the requests, too; `requests` alone are an error.
"""

_FURTHER_DEVICES = (
    (
        'any other name with "gpu"',
        "a device; a share, if the name contains a word such as mem, core or percent",
        "the number; 1 for a share",
        "Kubeflow Trainer v2.3.0, pkg/runtime/runtime.go:289-315, counts all of them",
    ),
    (
        "annotations `gpu-fraction`, `gpu-memory`",
        "a share of a GPU",
        "`gpu-fraction-num-devices`; default: 1",
        "KAI-scheduler, pkg/common/constants; Run:ai, GPU fractions",
    ),
    (
        "`claims` in `pod_template`",
        "a claim for dynamic resource allocation, whose devices the job does not state",
        "an error, if nothing else requests a device: give a number, or cpu",
        "Kubernetes, Dynamic Resource Allocation",
    ),
    ("any other name", "not an accelerator", "the same as without this resource", ""),
)

_MODELS: list[tuple[str, type[BaseModel]]] = [
    ("The job", TrainingJob),
    ("framework: torch", options.Torch),
    ("framework: torch, `elastic`", options.Elastic),
    ("framework: torchtune", options.TorchTune),
    ("framework: deepspeed", options.DeepSpeed),
    ("framework: mpi", options.MPI),
    ("framework: mlx", options.MLX),
    ("`env`: a plain value", EnvText),
    ("`env`: a key of a Secret", EnvSecret),
    ("`env`: a field of the pod", EnvField),
    ("`resources_per_node`", Resources),
    ("`storage`", parts.Storage),
    ("`roles`", parts.Role),
    ("`restart`", parts.Restart),
    ("`scheduling`", parts.Scheduling),
    ("`scheduling.launcher`, `scheduling` of a role", parts.Placement),
    ("`scheduling.topology`", parts.Topology),
    ("`network`", parts.Network),
]


def page() -> str:
    """Returns the page."""
    text = _INTRO.format(example=EXAMPLE.read_text(encoding="utf-8"))
    for title, model in _MODELS:
        text += f"\n## {title}\n\n{(model.__doc__ or '').strip().splitlines()[0]}\n\n"
        text += "| field | type | default | meaning |\n|---|---|---|---|\n"
        docs = field_docs(model)
        for name, field in model.model_fields.items():
            if name != "kind":
                meaning = " ".join(docs.get(name, "").split())
                text += f"| `{name}` | {_type(name, field)} | {_default(model, name, field)} | {meaning} |\n"
        if model is Resources:
            text += _DEVICES.format(rows="\n".join(_device_rows()))
    return text


def _device_rows() -> Iterator[str]:
    for row in KNOWN:
        names = ", ".join(f"`{name}`" for name in row.names)
        yield f"| {names} | {row.meaning} | {AUTO[row.unit]} | {row.source} |"
    yield from (f"| {' | '.join(row)} |" for row in _FURTHER_DEVICES)


def _default(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if model is TrainingJob and name == "name":
        return "derived"
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return f"`{value.kind}`" if isinstance(value, options.Torch) else ""
    if value is None or value in ([], {}):
        return ""
    is_duration = isinstance(value, int) and any(
        "duration" in getattr(m, "__qualname__", "") for m in _callables(field)
    )
    return (
        f"`{format_duration(value)}`"
        if is_duration
        else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _callables(field: FieldInfo) -> list[object]:
    return [getattr(m, "func", None) for m in field.metadata]


_TYPES = {"procs_per_node": "number, `auto`, `cpu`, `gpu`", "agent": "`auto`, true or false"}
"""The types of the fields that a validator reads from any value."""


def _type(name: str, field: FieldInfo) -> str:
    if name in _TYPES:
        return _TYPES[name]
    if any("duration" in getattr(m, "__qualname__", "") for m in _callables(field)):
        return "duration"
    return _type_name(field.annotation)


def _type_name(kind: object) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        names = [getattr(getattr(m, "func", None), "__qualname__", "") for m in args[1:]]
        if "parse_duration" in names:
            return "duration"
        return "quantity" if "read_quantity" in names else _type_name(args[0])
    if origin is typing.Literal:
        return ", ".join(f"`{a}`" for a in args)
    if origin is list:
        return f"list of {_type_name(args[0])}"
    if origin is dict:
        return "mapping" if args[1] is typing.Any else f"mapping to {_type_name(args[1])}"
    if args:
        known = [_type_name(a) for a in args if a is not type(None)]
        return " or ".join(dict.fromkeys(known)) if len(known) < 4 else "see below"
    if kind is EnvText:
        return "text"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "mapping"
    return {"str": "text", "int": "number", "bool": "true or false"}.get(getattr(kind, "__name__", ""), str(kind))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
