"""Detects templates. Airflow renders a template when the task runs. Until then, the value is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG

_DELIMITERS = {
    "block_start_string": "{%",
    "variable_start_string": "{{",
    "comment_start_string": "{#",
    "line_statement_prefix": None,
    "line_comment_prefix": None,
}
"""The parameters of jinja2.Environment that define how a template starts, with the default values."""
_NAMES = re.compile(r"\{\{ *[A-Za-z_][\w.]* *\}\}")
"""Expressions that are only a name, such as `{{ params.lr }}`. Templates with only such expressions are not compiled,
because this would double the time to create a task."""


@dataclass(frozen=True)
class Templates:
    """The rules with which Airflow detects templates in the arguments of a DAG's tasks.

    Args:
        starts: the strings with which a template starts.
        extensions: the suffixes of files that Airflow reads as templates.
        native: whether templates are rendered to Python objects. In this case, every string may be a template.
    """

    starts: tuple[str, ...] = ("{%", "{{", "{#")
    extensions: tuple[str, ...] = ()
    native: bool = False

    @classmethod
    def of(cls, dag: DAG | None, extensions: Sequence[str] = (), native: bool | None = None) -> Templates:
        """Returns the rules for a task of a DAG.

        If `dag` is None, every string may be a template, because the task may later be added to a DAG with other
        delimiters.

        Args:
            extensions: `template_ext` of the operator.
            native: the argument `render_template_as_native_obj` of the task, which takes precedence over the DAG's.
        """
        if dag is None:
            return cls(extensions=tuple(extensions), native=True)
        options = {**_DELIMITERS, **(dag.jinja_environment_kwargs or {})}
        starts = tuple(options[name] for name in _DELIMITERS if options[name])
        return cls(starts, tuple(extensions), dag.render_template_as_native_obj if native is None else native)

    def are_in(self, value: object) -> bool:
        """Returns whether any part of a value is a template (Templater.render_template of the task SDK).

        >>> Templates().are_in({"LR": "{{ params.lr }}"}), Templates().are_in(["--epochs", 3])
        (True, False)
        """
        if isinstance(value, str):
            return self.native or any(start in value for start in self.starts) or value.endswith(self.extensions)
        if isinstance(value, Mapping):
            return any(map(self.are_in, value.values()))
        if isinstance(value, (list, tuple, set, frozenset)):
            return any(map(self.are_in, value))
        return hasattr(value, "template_fields") or is_of_a_task(value)

    def start_in(self, value: object) -> bool:
        """Returns whether a value contains the start of a template. Other strings do not count as templates."""
        if isinstance(value, str):
            return any(start in value for start in self.starts)
        if isinstance(value, Mapping):
            return any(self.start_in(key) or self.start_in(each) for key, each in value.items())
        return isinstance(value, (list, tuple, set, frozenset)) and any(map(self.start_in, value))


def syntax_problems(values: Mapping[str, Any], templates: Templates, dag: DAG | None) -> Iterator[str]:
    """Yields a problem for each template of `values` that Jinja cannot compile, such as one with an unknown filter.

    Templates in files are not checked.
    """
    texts = [
        (name, text)
        for name, value in values.items()
        for text in _texts(value)
        if templates.start_in(_NAMES.sub("", text))
    ]
    if dag is None or not texts:
        return
    from jinja2 import TemplateSyntaxError

    from stepset.spec.scalars import shortened
    from stepset_airflow.native_templates import literal

    environment = dag.get_template_env()
    environment.filters.setdefault("literal", literal)
    for name, text in texts:
        try:
            if not text.endswith(templates.extensions):
                environment.compile(text, raw=True)
        except TemplateSyntaxError as error:
            yield f"{name}: {shortened(repr(text))} is not a valid template: {error.message}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def known_parts(value: object) -> object:
    """Returns `value` with None in the place of each part that is unknown until the task runs.

    Strings remain unchanged, because a template is rendered to a string or to JSON data.
    """
    if isinstance(value, Mapping):
        return {key: known_parts(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [known_parts(each) for each in value]
    return None if hasattr(value, "template_fields") or is_of_a_task(value) else value


def is_of_a_task(value: object) -> bool:
    """Returns whether a value is unknown until the task runs.

    Examples are an XComArg, which is the result of another task, and a DagParam.
    """
    return hasattr(value, "resolve") and hasattr(value, "iter_references")
