"""Writes docs/airflow-examples.md, which contains the source code of the example DAGs. `make docs` runs this file.

A test compares the page with the result of `page`.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "airflow-examples.md"
DAGS = ROOT / "dags"
_HEAD = """# Example DAGs

`tools/dag_docs.py` writes this page from the files in `dags/`. A test runs each DAG. [Airflow](airflow.md) describes
the parameters of the operator.
"""
_SCRIPT = DAGS / "digits" / "train.py"


def page() -> str:
    """Returns the text of the page.

    The page has a section for each DAG file, and a section for the script that most DAGs run.
    """
    sections = [_section(path) for path in (*sorted(DAGS.glob("*.py")), _SCRIPT)]
    return "\n".join([_HEAD, *sections])


def _section(path: Path) -> str:
    text = path.read_text()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    name = path.relative_to(DAGS).with_suffix("").as_posix()
    return f"## {name}\n\n{docstring.splitlines()[0]}\n\n```python\n{text}```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
