"""Writes docs/images/run.svg, a picture of a terminal in which `stepset run` runs an example.

`make terminal-picture` runs this program. The program runs the commands in a pseudo-terminal. Therefore the commands
print what a user sees, including colours and a status line that is updated in place.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.first_hour.shell import Shell  # noqa: E402  # after the change of sys.path

PICTURE = ROOT / "docs" / "images" / "run.svg"
COMMANDS = (
    "stepset run examples/torch/train.py --nodes 2 --procs-per-node 2 -- --epochs 3",
    "stepset status train",
)
COLUMNS = 115
# This format replaces Rich's own format, which loads a font from another server. With `textLength`, each text is as
# wide as its columns, whatever font the viewer uses.
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
text {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
white-space: pre; }}
.{unique_id}-title {{ font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
{matrix}
</g>
</svg>
"""


def picture(shown: str, title: str, columns: int) -> str:
    """Returns an SVG of a terminal.

    Args:
        shown: the decoded output that a terminal has received. If the output has updated a line, the picture shows the
            last state of the line.
        title: the text in the title bar of the window.
        columns: the width of the terminal in characters.

    Raises:
        ValueError: the output moves the cursor up. In this case, the picture would contain lines that the terminal has
            removed.
    """
    if any(f"\x1b[{number}A" in shown for number in ("", *range(1, 100))):
        raise ValueError("the output moves the cursor up; the picture cannot show that")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in Text.from_ansi(shown.replace("\r\n", "\n")).split("\n"):
            for start in range(0, max(1, len(line)), columns):  # a terminal wraps after any character
                console.print(line[start : start + columns], no_wrap=True, overflow="ignore", highlight=False)
        return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id="run")


def main() -> int:
    """Runs the commands and writes the picture.

    Returns 0, or the exit code of the first command that fails.
    """
    screen = ""
    with tempfile.TemporaryDirectory(prefix="stepset-picture-") as home:
        shell = Shell(ROOT, Path(home), COLUMNS)
        for command in COMMANDS:
            shown = shell(*shlex.split(command)[1:])
            screen += f"\x1b[1m$ {command}\x1b[0m\n{shown.out}"
            if shown.code:
                sys.stderr.write(shown.text)
                return shown.code
    PICTURE.write_text(picture(screen, "stepset", COLUMNS), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
