"""Which values Airflow renders when a task runs, so that they are not known when the DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG

_DELIMITERS = {
    "block_start_string": "{%",
    "variable_start_string": "{{",
    "comment_start_string": "{#",
    "line_statement_prefix": None,
    "line_comment_prefix": None,
}
"""jinja2.Environment's parameters that start a template, and their defaults."""


@dataclass(frozen=True)
class Templates:
    """The templates of a DAG's tasks.

    Args:
        starts: texts that start a template.
        extensions: ends of names of files that Airflow reads as templates.
        native: whether each text may change when it is rendered, as in a DAG that renders texts to Python objects.
    """

    starts: tuple[str, ...] = ("{%", "{{", "{#")
    extensions: tuple[str, ...] = ()
    native: bool = False

    @classmethod
    def of(cls, dag: DAG | None, extensions: Sequence[str] = ()) -> Templates:
        """Returns the templates of a DAG's tasks; `extensions` is the operator's.

        Without a DAG each text may be a template, because the DAG that a task joins later defines the delimiters.
        """
        if dag is None:
            return cls(extensions=tuple(extensions), native=True)
        options = {**_DELIMITERS, **(dag.jinja_environment_kwargs or {})}
        starts = tuple(options[name] for name in _DELIMITERS if options[name])
        return cls(starts, tuple(extensions), dag.render_template_as_native_obj)

    def are_in(self, value: object) -> bool:
        """Whether Airflow renders a part of a value (Templater.render_template of the task SDK).

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


def is_of_a_task(value: object) -> bool:
    """Whether a value is known only when a task runs, such as the result of another task (XComArg, DagParam)."""
    return hasattr(value, "resolve") and hasattr(value, "iter_references")
