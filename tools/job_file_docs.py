"""Writes docs/job-file.md from the models: every field with its type, default and meaning. `make docs` runs it.

A test compares the page with the output.
"""

from __future__ import annotations

import sys
import typing
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stepset.spec import options, parts
from stepset.spec.environ import EnvField, EnvSecret, EnvText
from stepset.spec.job import TrainingJob
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

Durations are whole seconds or text such as `90s`, `30m`, `12h`, `1d12h`. Quantities are Kubernetes' (`500m`, `4`,
`16Gi`). In values of `env` and in `args`, `$(NAME)` is replaced by the value of the variable NAME, as in Kubernetes,
also in local runs.
"""

_MODELS: list[tuple[str, type[BaseModel]]] = [
    ("The job", TrainingJob),
    ("framework: torch", options.Torch),
    ("framework: torch, `elastic`", options.Elastic),
    ("framework: torchtune", options.TorchTune),
    ("framework: deepspeed", options.DeepSpeed),
    ("framework: mpi", options.MPI),
    ("framework: mlx", options.MLX),
    ("`env`: text (or a plain value)", EnvText),
    ("`env`: a key of a Secret", EnvSecret),
    ("`env`: a field of the pod", EnvField),
    ("`resources_per_node`", Resources),
    ("`storage`", parts.Storage),
    ("`roles`", parts.Role),
    ("`restart`", parts.Restart),
    ("`scheduling`", parts.Scheduling),
    ("`scheduling.topology`", parts.Topology),
    ("`network`", parts.Network),
]


def page() -> str:
    """Returns the page."""
    text = _INTRO.format(example=EXAMPLE.read_text(encoding="utf-8"))
    for title, model in _MODELS:
        text += f"\n## {title}\n\n{(model.__doc__ or '').strip().splitlines()[0]}\n\n"
        text += "| field | type | default | meaning |\n|---|---|---|---|\n"
        for name, field in model.model_fields.items():
            if name != "kind":
                meaning = " ".join((field.description or "").split())
                text += f"| `{name}` | {_type(field)} | {_default(name, field)} | {meaning} |\n"
    return text


def _default(name: str, field: FieldInfo) -> str:
    if name == "name" and field.is_required():
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


def _type(field: FieldInfo) -> str:
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
    if kind is typing.Any:
        return "`auto`, ..."
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "mapping"
    return {"str": "text", "int": "number", "bool": "true or false"}.get(getattr(kind, "__name__", ""), str(kind))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
