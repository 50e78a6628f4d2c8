"""The arguments of an operator when a DAG file is parsed, and which of them have no value yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from stepset_airflow.parsing.templates import Templates, is_of_a_task


@dataclass(frozen=True)
class Given:
    """Arguments by parameter; a parameter that is missing may get a value from `expand`.

    Args:
        values: the arguments.
        templated: the parameters that Airflow renders.
        templates: what Airflow renders.
    """

    values: Mapping[str, Any]
    templated: Collection[str]
    templates: Templates

    def is_known(self, name: str) -> bool:
        """Whether a parameter's value is known.

        A known value is given, is not the result of another task, and Airflow does not render it.
        """
        if name not in self.values or is_of_a_task(value := self.values[name]):
            return False
        return name not in self.templated or not self.templates.are_in(value)

    def value(self, name: str) -> Any:
        """Returns a parameter's value; None if it is not known, or None."""
        return self.values[name] if self.is_known(name) else None

    def misplaced_results(self) -> list[str]:
        """Returns a problem for each result of another task in a parameter that Airflow does not render."""
        names = [name for name, value in self.values.items() if name not in self.templated and is_of_a_task(value)]
        return [f"{name}: the result of another task is possible in templated parameters only" for name in names]
