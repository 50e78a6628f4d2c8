"""Writes docs/reference/PACKAGE.md, which lists the public names of a package with their signatures and docstrings.

`make docs` runs this program. Tests run it with `--check`, and fail if a page does not match the code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.api_snapshot import lines_of, write_or_check
from tools.kfp_readmes import meanings_of

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
TITLES = {
    "stepset": "The Python API",
    "stepset_airflow": "The Airflow provider's API",
    "stepset_kfp": "The Kubeflow Pipelines API",
}
_COMPONENTS = {"stepset_kfp.distributed_train": "distributed_train"}
"""The functions whose keyword arguments are the inputs of a component, with the folder of the component."""
_SECTIONS = {"Args:": "Arguments", "Raises:": "Errors", "Returns:": "Returns", "Yields:": "Yields"}


def page(package: str) -> str:
    """Returns the text of a package's page. The page has one section for each public name."""
    module = import_module(package)
    intro = (
        f"`tools/api_pages.py` writes this page from the docstrings of `{package}`. [docs/api](../api/{package}.txt)"
    )
    title = f"# {TITLES[package]}: `{package}`\n\n{intro}\nrecords the signatures; a test fails when they change."
    return "\n\n".join([title, *_module(module)]) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    yield markdown(inspect.getdoc(module) or "")
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield f"## `{value.__name__}`"
            yield from _module(value)
        else:
            yield from _section(f"{module.__name__}.{name}", value)


def _section(name: str, value: Any) -> Iterator[str]:
    yield f"## `{name}`"
    yield "```text\n" + "\n".join(lines_of(name, value)) + "\n```"
    if text := _docstring(value):
        yield markdown(text)
    if name in _COMPONENTS:
        meanings = meanings_of(_COMPONENTS[name])
        yield "**Inputs**\n\n" + "\n".join(_item(f"{each}: {meanings[each]}") for each in _keywords(value))
    if inspect.isclass(value):
        for method, function in vars(value).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                yield f"### `{name}.{method}`"
                yield markdown(inspect.getdoc(function) or "")


def _keywords(function: Any) -> Iterable[str]:
    """Returns the names that `**inputs: Unpack[Inputs]` of a function accepts."""
    (accepted,) = get_args(get_type_hints(function, localns={"PipelineTask": Any})["inputs"])
    return accepted.__annotations__


def _docstring(value: Any) -> str:
    """Returns the docstring of a name."""
    if isinstance(value, UnionType):
        return ""  # the value is a union, and its docstring is the docstring of the class UnionType
    return inspect.getdoc(value) or ""


def markdown(docstring: str) -> str:
    """Returns a docstring as Markdown. Sections such as `Args:` become lists, and examples become code blocks.

    >>> print(markdown("Adds.\\n\\nArgs:\\n    a, b: the numbers,\\n        as integers."))
    Adds.
    <BLANKLINE>
    **Arguments**
    <BLANKLINE>
    - `a`, `b`: the numbers, as integers.
    """
    return "\n\n".join(_block(block) for block in _blocks(docstring.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields the parts of a docstring that are separated by blank lines.

    A section with an indented text is one part, even if it contains blank lines.
    """
    block: list[str] = []
    for line in [*lines, ""]:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []


def _block(lines: list[str]) -> str:
    first = lines[0]
    if first in _SECTIONS:
        return f"**{_SECTIONS[first]}**\n\n{_items(lines[1:], names=first in ('Args:', 'Raises:'))}"
    if first.startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if first.startswith("    "):
        return "\n".join(["```python", *(line.removeprefix("    ") for line in lines), "```"])
    return "\n".join(lines)


def _items(lines: Sequence[str], *, names: bool) -> str:
    if not names:
        return " ".join(line.strip() for line in lines)
    items: list[str] = []
    for line in lines:
        if not items or (not line.startswith("     ") and ": " in items[-1]):
            items.append(line.strip())
        else:
            items[-1] += f" {line.strip()}"
    return "\n".join(_item(item) for item in items)


def _item(item: str) -> str:
    names, _, text = item.partition(": ")
    return f"- {', '.join(f'`{name.strip()}`' for name in names.split(','))}: {text}"


def main(argv: Sequence[str] | None = None, pages: Path = PAGES) -> int:
    """Writes or checks the pages, and returns the exit code."""
    return write_or_check(argv, pages / "{}.md", page, "The docstrings changed: run `make docs`.")


if __name__ == "__main__":
    sys.exit(main())
