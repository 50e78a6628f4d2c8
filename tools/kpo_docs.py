"""Writes the tables of docs/airflow-kpo.md from stepset_airflow/parsing/kpo_parameters.py. `make docs` runs it.

The text before the tables is written by hand. A test compares the page with the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepset_airflow.parsing.kpo_parameters import JOB, KPO_PARAMETERS, POD, KpoParameter

PAGE = Path(__file__).resolve().parent.parent / "docs" / "airflow-kpo.md"
_HEADING = "## KubernetesPodOperator parameter to ours\n"
_INTRO = f"""{_HEADING}
*unchanged*: the parameter has the same name and meaning. Parameters that exist here with other values accept only the
values of stepset. When Airflow parses the DAG file, each other parameter is an error with the text of this table. The
container of the ranks is called `node`; [`pod_template`](targets.md#settings-without-a-field-pod_template) is merged
over the pods that stepset makes. Join several examples with `pod_template` or `scheduling` to one mapping.
"""


def page() -> str:
    """Returns the page: its text, and the tables."""
    text = PAGE.read_text(encoding="utf-8").partition(_HEADING)[0]
    return f"{text}{_INTRO}\n" + "\n".join(_table(operator) for operator in (POD, JOB))


def _table(operator: str) -> str:
    title = "" if operator == POD else f"{operator} has these parameters in addition:\n\n"
    rows = "".join(_rows(operator))
    return f"{title}| {operator} | here | |\n|---|---|---|\n{rows}"


def _rows(operator: str) -> Iterator[str]:
    for row in KPO_PARAMETERS.values():
        if row.operator == operator:
            yield f"| `{row.name}` | {_here(row)} | {row.note.replace('|', chr(92) + '|')} |\n"


def _here(row: KpoParameter) -> str:
    if row.unchanged:
        return "unchanged"
    return f"`{row.example}`" if row.example else "does not exist"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
