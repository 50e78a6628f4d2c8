"""Renders the templates of a DAG with `render_template_as_native_obj=True`, and does not change texts.

In such a DAG, Airflow converts every text that has the form of a Python literal. For example, the item `"1.10"` of
`args` becomes 1.1. With the class of this module, only two kinds of values become objects:

- the value of an expression, such as the list of `{{ params.sizes }}`, except for an item of `args` or a value of `env`
- a whole field whose text is the literal of a list or of a mapping, such as `['--epochs', '3']`

Airflow's own rules apply to the arguments of a decorated function.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

_OF_FUNCTIONS = frozenset({"op_args", "op_kwargs", "templates_dict"})
"""The fields with the arguments of a decorated function, which Airflow renders as for `@task`."""
_LISTS_OF_TEXTS = frozenset({"args", "command", "requirements"})
_MAPPINGS_OF_TEXTS = frozenset({"env", "labels", "annotations", "node_selector", "nodeSelector", "matchLabels"})
"""The keys of mappings whose values are texts: fields of a job, and fields of a pod in `pod_template`."""
_TEXTS = frozenset(
    {"name", "image", "script", "module", "function", "checkpoint_dir", "deadline", "ttl", "termination_grace_period"}
)
"""The fields of a job that are never lists or mappings."""


def literal(value: Any) -> Any:
    """Escapes a value of `args`, `command` or `env`, so that the process gets the value unchanged. A Jinja filter.

    Kubernetes and local runs replace `$(NAME)` and `$$` in these fields. The texts in a list, a tuple or a mapping are
    also escaped. Other values are not changed.

    >>> literal("$(API_TOKEN)"), literal(["a$$b", 3])
    ('$$(API_TOKEN)', ['a$$$$b', 3])
    """
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: literal(each) for key, each in value.items()}
    return [literal(each) for each in value] if isinstance(value, list | tuple) else value


class NativeTemplates(BaseOperator):
    """An operator whose fields keep their texts if the DAG renders templates to Python objects.

    Its templates can use the filter `literal`, unless the DAG defines a filter of this name.
    """

    # MappedOperator.render_template_fields also calls this method (task SDK, definitions/mappedoperator.py).
    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        jinja_env.filters.setdefault("literal", literal)
        dag = self.get_dag()
        own = self.render_template_as_native_obj
        if parent is self and (own if own is not None else dag is not None and dag.render_template_as_native_obj):
            fields = _Fields(jinja_env, tuple(self.template_ext), seen_oids)
            for name in template_fields:
                if name not in _OF_FUNCTIONS and (value := getattr(self, name)) and not callable(value):
                    setattr(self, name, fields.of(name, value))
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)


@dataclass(frozen=True, eq=False)
class _Template:
    """A template in a field. Airflow calls `resolve` to render the template, as for the result of another task.

    Args:
        text: the template.
        environment: the environment in which the template is rendered.
        extensions: the suffixes of files that Airflow reads as templates.
        keeps_objects: whether the value of an expression stays an object.
        reads_literals: whether a text that is the literal of a list or of a mapping becomes this list or mapping.
    """

    text: str
    environment: jinja2.Environment
    extensions: tuple[str, ...]
    keeps_objects: bool = True
    reads_literals: bool = False

    def resolve(self, context: Context) -> Any:
        """Returns the value of the template."""
        from jinja2 import Undefined

        is_file = self.text.endswith(self.extensions)
        template = self.environment.get_template(self.text) if is_file else self.environment.from_string(self.text)
        nodes = list(template.root_render_func(template.new_context(dict(context))))
        if self.keeps_objects and len(nodes) == 1 and not isinstance(nodes[0], (str, Undefined)):
            return nodes[0]
        text = "".join(map(str, nodes))
        return _literal(text) if self.reads_literals else text


def _literal(text: str) -> Any:
    """Converts a text that is the literal of a list or a mapping to the list or mapping. Returns other texts unchanged.

    >>> _literal("['--epochs', '3']"), _literal("1.10")
    (['--epochs', '3'], '1.10')
    """
    try:
        value = ast.literal_eval(ast.parse(text, mode="eval"))  # without ast.parse, leading spaces would be removed
    except (ValueError, SyntaxError, MemoryError, TypeError, RecursionError):
        return text
    return value if isinstance(value, (list, tuple, dict, set)) else text


@dataclass(frozen=True)
class _Fields:
    """Replaces the texts of fields by `_Template` objects.

    Args:
        environment: the environment in which the templates are rendered.
        extensions: the suffixes of files that Airflow reads as templates.
        rendered: the ids of values without templates, for example of mapped arguments that another task returned.
    """

    environment: jinja2.Environment
    extensions: tuple[str, ...]
    rendered: Collection[int]

    def of(self, name: str, value: Any) -> Any:
        """Returns the value of a field. `name` is the name of a parameter, or of a field of a job or a role."""
        if id(value) in self.rendered:
            return value
        if isinstance(value, str):
            return replace(self._template(value), reads_literals=name not in _TEXTS)
        if name == "job" and isinstance(value, Mapping):
            return self._fields_of(value)
        if name == "roles" and isinstance(value, list):
            return [self._fields_of(each) if isinstance(each, Mapping) else self._inside("", each) for each in value]
        return self._inside(name, value)

    def _fields_of(self, value: Mapping[str, Any]) -> Any:
        if id(value) in self.rendered:
            return value
        return {key: self.of(key, each) for key, each in value.items()}

    def _inside(self, key: str, value: Any, *, of_env: bool = False) -> Any:
        """Returns a part of a field. `key` is the key of the part, or "" for an item of a list.

        `of_env` states whether the part is an item of a container's `env`.
        """
        if id(value) in self.rendered:
            return value
        if isinstance(value, str):
            return self._text(value) if of_env and key == "value" else self._template(value)
        if isinstance(value, dict):
            texts = key in _MAPPINGS_OF_TEXTS
            return {
                name: self._text(each) if texts and isinstance(each, str) else self._inside(name, each, of_env=of_env)
                for name, each in value.items()
            }
        if type(value) in (list, tuple, set):
            texts = key in _LISTS_OF_TEXTS
            items = (
                self._text(each) if texts and isinstance(each, str) else self._inside("", each, of_env=key == "env")
                for each in value
            )
            return type(value)(items)
        return value

    def _text(self, value: str) -> Any:
        return value if id(value) in self.rendered else replace(self._template(value), keeps_objects=False)

    def _template(self, value: str) -> _Template:
        return _Template(value, self.environment, self.extensions)
