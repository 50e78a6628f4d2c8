"""Writes docs/reference/cli.md, which contains the output of `stepset COMMAND --help` for each command.

`make docs` runs this program. A test fails if the page does not match the code.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

from stepset.cli import main as stepset
from stepset.cli.app import build

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"
_INTRO = """# Commands and options

`tools/cli_reference.py` writes this page from the output of `stepset COMMAND --help`. [The command line](../cli.md)
explains the commands by topic.
"""


def page() -> str:
    """Returns the text of the page. The page has a section for the program, and one for each command."""
    sections = [("stepset", []), *((f"stepset {name}", [name]) for name in build().commands)]
    return _INTRO + "".join(f"\n## {title}\n\n```text\n{_help(words)}```\n" for title, words in sections)


def _help(words: list[str]) -> str:
    out = io.StringIO()
    terminal = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    with mock.patch.dict(os.environ, terminal), contextlib.redirect_stdout(out):
        stepset([*words, "--help"])
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines()) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
