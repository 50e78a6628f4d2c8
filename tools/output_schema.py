"""Writes docs/cli-output.schema.json, the JSON Schema of the output of commands with `-o json`.

`make docs` runs this program. A test fails if the file does not match the code.
"""

from __future__ import annotations

from pathlib import Path

from stepset.cli.output.formats import as_json
from stepset.cli.output.schema import output_schema

FILE = Path(__file__).resolve().parent.parent / "docs" / "cli-output.schema.json"

if __name__ == "__main__":
    FILE.write_text(as_json(output_schema()), encoding="utf-8")
    print(f"wrote {FILE.name}")
