"""Writes docs/airflow-examples.md: the source of the example DAGs. `make docs` runs it.

A test compares the page with the output.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "airflow-examples.md"
DAGS = ROOT / "dags"
_HEAD = """# Example DAGs

`tools/dag_docs.py` writes this page from [dags/](../dags); a test runs each DAG. [Airflow](airflow.md) describes
the parameters.
"""
_SCRIPT = DAGS / "digits" / "train.py"


def page() -> str:
    """Returns the page: a section for each DAG file, and one for the script that most of them run."""
    sections = [_section(path) for path in (*sorted(DAGS.glob("*.py")), _SCRIPT)]
    return "\n".join([_HEAD, *sections])


def _section(path: Path) -> str:
    text = path.read_text()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    name = path.relative_to(DAGS).with_suffix("").as_posix()
    return f"## {name}\n\n{docstring.splitlines()[0]}\n\n```python\n{text}```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
