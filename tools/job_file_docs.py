"""Writes docs/job-file.md, which lists every field of the job file with its type, default and meaning.

The text is generated from the pydantic models. `make docs` runs this program. A test fails if the page does not match
the models.
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

You can write a job as a YAML or JSON file, as a Python mapping, or as the parameters of an operator. The field names
are the same in all of these forms. If the job contains an unknown field, the error message contains the most similar
field name.
`stepset validate JOB.yaml` checks a file, and `stepset schema` prints the JSON Schema for your editor.

```yaml
{example}```

A duration is a whole number of seconds, or a string such as `90s`, `30m`, `12h` or `1d12h`. Quantities have the format
of Kubernetes, such as `500m`, `4` or `16Gi`. In values of `env`, in `command` and in `args`, Kubernetes replaces
`$(NAME)` with the value of the variable NAME, and `$$` with `$`. In local runs, stepset makes the same replacements. To
pass a string that contains `$$`, such as a password, write `$$$$` for each `$$`. To pass the string `$(NAME)`, write
`$$(NAME)`. `stepset explain` shows what the process gets.

YAML and JSON read some strings as numbers, booleans or dates. These strings may need quotes in the job file:

- In `env` and `rdzv_conf`, a number or a boolean needs quotes only if YAML or JSON would change its spelling.
- In `args` and `command`, a number needs quotes only if YAML or JSON would change its spelling. A boolean always needs
  quotes.
- In all other string fields, such as labels, every number and every boolean needs quotes.

If the quotes are missing, stepset reports an error. The following table shows values whose spelling YAML or JSON would
change:

| in the file | YAML reads | write |
|---|---|---|
| `1.10` | 1.1 | `"1.10"` |
| `017` | 15 (octal) | `"017"` |
| `12:30` | 750 (base 60) | `"12:30"` |
| `1_000` | 1000 | `"1_000"` |
| `yes`, `on`, `True` | true | `"yes"` |
| `2026-11-25` | a date | `"2026-11-25"` |
| `1e3` in JSON | 1000.0 | `"1e3"` |
| `8`, `0.5`, `1e3` in YAML | a number with the same spelling | no quotes are needed |

On a command line, protect the quotes from the shell, for example `--set 'env.VERSION="1.10"'`. The option
`--env VERSION=1.10` needs no quotes. Numeric fields, such as `num_nodes`, accept neither octal numbers nor base-60
numbers. `command` and `args` must be lists. If you write a string, the error message shows the equivalent list.

These sections and pages contain further details:

- The section [Shipped code](security.md#shipped-code) states which files of the `code` directory are not copied to the
  pods, and which files cause an error.
- The section [Secrets](security.md#secrets) states which values of Secrets may appear in logs.
- The page [Targets](targets.md#what-a-failed-pod-means-jobset-trainjob) states when the timer of a `deadline` starts,
  and which failures count towards `max_restarts`.
"""

_DEVICES = """
### What `procs_per_node: auto` becomes

With `auto`, a node runs one process for each accelerator that the pod of the node requests. However, a unit of a
resource is not always one accelerator. The column "`auto` becomes" contains the number of processes. In this column,
"the requested number" is the number of units that the pod requests. This column applies to `procs_per_node: auto` and
to `procs_per_node: gpu`. In the names, `*` matches any string and `?` matches any character. If several rows match a
name, the first row applies.

| resource | one unit is | `auto` becomes | source |
|---|---|---|---|
{rows}

If a pod requests no accelerator, `auto` depends on the framework. For torch, torchtune, and deepspeed without mpirun,
`auto` is the number of CPUs, rounded up. For other frameworks, `auto` is 1.

Two frameworks do not count accelerators. JAX always runs one process per node. For the framework `plain`, `auto` is
always 1.

If a pod requests devices of several kinds, only one kind determines the number of processes. stepset selects this kind
as follows:

1. Whole devices take precedence over shares of devices.
2. Names that contain "gpu" take precedence over other names.
3. The first name in alphabetical order takes precedence.

A request for two MIG profiles is an error. A request for MIG devices together with GPUs is also an error.
`stepset explain` states which rule was applied. For GPUs, torchrun itself counts the devices
(`PET_NPROC_PER_NODE=auto`). Kubeflow Trainer uses the same setting. In a local run, torchrun would count all GPUs of
the machine. Therefore stepset passes the number of GPUs that the job requests for a node.

For devices, Kubernetes accepts only whole numbers, and requires that the request is equal to the limit. If a container
has only a limit for a device, Kubernetes uses the limit as the request. If a container has only a request for a device,
stepset reports an error.
"""

_FURTHER_DEVICES = (
    (
        'any other name with "gpu"',
        "a device, or a share of a device if the name contains a word such as mem, core, milli or percent",
        "the requested number for devices; 1 for shares",
        'Kubeflow Trainer v2.3.0, pkg/runtime/runtime.go:289-315 (it counts every resource whose name contains "gpu")',
    ),
    (
        "annotations `gpu-fraction`, `gpu-memory`",
        "a share of a GPU",
        "the number in the annotation `gpu-fraction-num-devices`, or 1 if this annotation is missing",
        "KAI-scheduler, pkg/common/constants; Run:ai, GPU fractions",
    ),
    (
        "`claims` in `pod_template`",
        "a claim for dynamic resource allocation; the job does not state how many devices the claim contains",
        "an error if the pod requests no other device; set `procs_per_node` to a number or to `cpu`",
        "Kubernetes, Dynamic Resource Allocation",
    ),
    (
        "any other name",
        "unknown, or not an accelerator if the name contains a word such as nic, rdma or sriov",
        "the same number as without this resource. If the unit is unknown and the pod requests no other accelerator,"
        " `validate` and `explain` print a note",
        "",
    ),
)


def _framework_models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yields the models of the frameworks that have options, each followed by the models of these options."""
    for kind, model in options.MODELS.items():
        if model.model_fields.keys() != {"kind"}:
            yield f"framework: {kind}", model
        for name, field in model.model_fields.items():
            for part in (field.annotation, *typing.get_args(field.annotation)):
                if getattr(part, "__module__", "") == options.__name__:
                    yield f"framework: {kind}, `{name}`", typing.cast("type[BaseModel]", part)


_MODELS: list[tuple[str, type[BaseModel]]] = [
    ("The job", TrainingJob),
    *_framework_models(),
    ("`env`: a plain value", EnvText),
    ("`env`: a key of a Secret", EnvSecret),
    ("`env`: a field of the pod", EnvField),
    ("`resources_per_node`", Resources),
    ("`code`, as a mapping", parts.CodeVolume),
    ("`storage`", parts.Storage),
    ("`roles`", parts.Role),
    ("`restart`", parts.Restart),
    ("`hang`", parts.HangTimes),
    ("`scheduling`", parts.Scheduling),
    ("`scheduling.launcher`, `scheduling` of a role", parts.Placement),
    ("`scheduling.topology`", parts.Topology),
    ("`network`", parts.Network),
]


def page() -> str:
    """Returns the text of the page."""
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
"""The types of fields that are annotated as Any, because a validator parses their values."""


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
        return "string"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "mapping"
    return {"str": "string", "int": "number", "bool": "true or false"}.get(getattr(kind, "__name__", ""), str(kind))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
