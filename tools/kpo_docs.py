"""Writes the tables of docs/airflow-kpo.md from stepset_airflow/parsing/kpo_parameters.py. `make docs` runs this file.

The text before the tables is written by hand. A test compares the page with the result of `page`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepset_airflow.parsing.kpo_parameters import JOB, KPO_PARAMETERS, POD, KpoParameter

PAGE = Path(__file__).resolve().parent.parent / "docs" / "airflow-kpo.md"
_HEADING = "## Parameters and their equivalents\n"
_INTRO = f"""{_HEADING}
The second column of the tables shows the equivalent parameter of DistributedTrainOperator. *unchanged* means that
DistributedTrainOperator has a parameter with the same name and meaning. If the two operators accept different values
for this parameter, use a value that DistributedTrainOperator accepts. If the second column does not contain
*unchanged*, the parameter of KubernetesPodOperator causes an error when Airflow parses the DAG file.

stepset merges [`pod_template`](targets.md#settings-without-a-field-pod_template) into the pods that it creates. In
these pods, the container of the ranks is called `node`. If you use several values of `pod_template` from the tables,
merge these values into one mapping. Also merge several values of `scheduling` into one mapping.
"""


def page() -> str:
    """Returns the text of the whole page, including the tables."""
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
